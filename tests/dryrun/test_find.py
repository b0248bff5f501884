"""`find_spaces` gives the same spaces in any mode, and handles networks with nothing to shrink."""

from __future__ import annotations

import copy

import torch
from tests.zoo import residual
from torch import nn

from interpress import find_spaces


def network() -> nn.Module:
    torch.manual_seed(0)
    return residual.ResNet(residual.BasicBlock, (2, 2))


IMAGES = torch.randn(3, 3, 16, 16)


def test_spaces_do_not_depend_on_gradients_or_mode() -> None:
    model = network()
    expected = find_spaces(model, IMAGES).names
    frozen_model = copy.deepcopy(model).requires_grad_(False).eval()
    with torch.no_grad():
        assert find_spaces(frozen_model, IMAGES).names == expected


def test_the_model_is_not_changed() -> None:
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    spaces = find_spaces(model, IMAGES)
    assert spaces.program.model is model
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    assert model.training


def test_a_network_with_nothing_to_shrink() -> None:
    spaces = find_spaces(nn.Linear(4, 3), torch.randn(2, 4))
    assert spaces.shrinkable == []
    parameterless = find_spaces(nn.ReLU(), torch.randn(2, 4))
    assert len(parameterless) == 0
    assert parameterless.cost().flops == 0


def test_exclude_may_be_one_pattern() -> None:
    spaces = find_spaces(network(), IMAGES, exclude="head")
    assert "excluded by the pattern 'head'" in str(spaces["layers.2.body.2.0"].frozen)


def test_two_views_of_one_weight_stay_whole() -> None:
    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode = nn.Linear(16, 64, bias=False)
            self.decode = nn.Linear(64, 16, bias=False)
            self.decode.weight = nn.Parameter(self.encode.weight.t())
            self.head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.decode(self.encode(x).relu()))

    spaces = find_spaces(Autoencoder().eval(), torch.randn(4, 16))
    assert "views of the same weight" in str(spaces["encode"].frozen)
    assert spaces["head.0"].frozen is None


def test_parts_of_one_storage_are_no_views_of_one_weight() -> None:
    model = nn.Sequential(nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Linear(6, 3, bias=False))
    flat = torch.randn(6 * 4 + 3 * 6)
    model[0].weight = nn.Parameter(flat[:24].view(6, 4))
    model[2].weight = nn.Parameter(flat[24:].view(3, 6))
    assert find_spaces(model, torch.randn(4, 4))["0"].frozen is None
