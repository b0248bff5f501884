from __future__ import annotations

import copy

import pytest
import torch
from tests.zoo import residual
from tests.zoo.checks import halved
from torch import nn

from interpress import ArgumentError, find_spaces
from interpress.dryrun.inputs import random_interpolations
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import prove
from interpress.surgery.shrink import shrink


def network() -> nn.Module:
    torch.manual_seed(0)
    return residual.ResNet(residual.BasicBlock, (2, 2))


IMAGES = torch.randn(3, 3, 16, 16)


@pytest.mark.parametrize("pattern", ["layers.1", "layers.1.body.*", "*.project", "head", "stem.0"])
def test_a_frozen_module_does_not_change(pattern: str) -> None:
    model = network()
    spaces = find_spaces(model, IMAGES, exclude=[pattern])
    assert any(f"frozen by the pattern {pattern!r}" in str(s.frozen) for s in spaces.frozen)
    assert spaces.shrinkable
    kept = {s.name: halved(s, seed=1) for s in spaces.shrinkable}
    T = random_interpolations(Cut(spaces, kept))
    small = shrink(spaces, kept, T)
    assert prove(spaces, Cut(spaces, kept, T), small)
    held = [
        (name, value)
        for name, value in model.state_dict().items()
        if name.startswith(pattern.rstrip(".*")) or (pattern == "*.project" and ".project." in name)
    ]
    assert held
    assert all(torch.equal(small.state_dict()[name], value) for name, value in held)


def test_one_pattern_may_be_a_plain_string() -> None:
    assert "head" in str(find_spaces(network(), IMAGES, exclude="head")["layers.2.body.2.0"].frozen)


def test_a_pattern_without_a_module_is_an_error() -> None:
    with pytest.raises(ArgumentError, match=r"'layer1.\*' matches no module; module names look"):
        find_spaces(network(), IMAGES, exclude=["layer1.*"])


def test_every_role_is_named() -> None:
    space = find_spaces(network(), IMAGES)["layers.0.body.0.0"]
    assert space.producers == ("layers.0.body.0.0.weight",)
    assert set(space.carriers) >= {
        f"layers.0.body.0.1.{n}" for n in ("weight", "bias", "running_var")
    }
    assert space.consumers == ("layers.0.body.2.0.weight",)
    assert len(space.taps) == 1


def test_the_table_fits_a_terminal_and_says_everything() -> None:
    spaces = find_spaces(network(), IMAGES)
    text = str(spaces)
    assert max(len(line) for line in text.splitlines()) <= 80
    words = " ".join(text.split())
    for word in ("space", "size", "FLOPs", "stem.0", "frozen: it is an output of the model"):
        assert word in words
    assert "6 spaces can shrink, 1 is frozen; 100% of" in words
    assert repr(spaces) == text


def test_spaces_are_a_sequence_with_names() -> None:
    spaces = find_spaces(network(), IMAGES)
    assert len(spaces) == 7
    assert spaces[0] is spaces["stem.0"]
    assert [space.name for space in spaces] == spaces.names
    with pytest.raises(ArgumentError, match=r"no space 'nope'; the spaces are stem.0"):
        spaces["nope"]


def test_shares_of_flops() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2), nn.ReLU(), nn.Linear(2, 4))
    spaces = find_spaces(model, torch.randn(3, 4))
    assert spaces.cost().flops == 2 * 3 * (32 + 16 + 8)
    assert spaces.cost.share("0") == pytest.approx(48 / 56)
    assert spaces.cost.share("2") == pytest.approx(24 / 56)
    assert spaces.cost({"0": 3, "2": 1}).flops == 2 * 3 * (12 + 3 + 4)
    assert spaces.cost({"0": 3}).parameters == 4 * 3 + 3 + 3 * 2 + 2 + 2 * 4 + 4
    assert spaces.cost({"0": 3}).activation_bytes == 4 * 3 * (3 + 3 + 2 + 2 + 4)
    with pytest.raises(ArgumentError, match="width 9 is not one of 1 to 8 in steps of 1"):
        spaces.cost({"0": 9})


def test_a_network_with_nothing_to_shrink() -> None:
    spaces = find_spaces(nn.Linear(4, 3), torch.randn(2, 4))
    assert spaces.shrinkable == []
    assert "0 spaces can shrink" in str(spaces)
    parameterless = find_spaces(nn.ReLU(), torch.randn(2, 4))
    assert len(parameterless) == 0
    assert parameterless.cost().flops == 0


def test_code_that_cannot_run_narrower_is_frozen_by_name_and_the_rest_goes_on() -> None:
    class Stubborn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 12), nn.Linear(12, 8), nn.Linear(8, 2)

        def forward(self, x):
            h = self.a(x).view(-1, 3, 4).relu().reshape(-1, 12)  # the literals hold it
            return self.c(self.b(h).relu())

    spaces = find_spaces(nn.Sequential(nn.Identity(), Stubborn()), torch.randn(5, 4))
    assert "the code of 1 fails with fewer (RuntimeError" in str(spaces["1.a"].frozen)
    assert spaces["1.b"].frozen is None


def test_code_that_runs_but_means_something_else_is_frozen() -> None:
    class Sneaky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 12), nn.Linear(12, 8), nn.Linear(8, 2)

        def forward(self, x):
            h = self.a(x)
            return self.c(self.b(h.relu() / h.shape[-1]).relu())

    spaces = find_spaces(Sneaky(), torch.randn(5, 4))
    assert "cannot be proved (difference" in str(spaces["a"].frozen)
    assert spaces["b"].frozen is None


def test_finding_spaces_does_not_depend_on_gradients_or_mode() -> None:
    model = network()
    expected = find_spaces(model, IMAGES).names
    still = copy.deepcopy(model).requires_grad_(False).eval()
    with torch.no_grad():
        assert find_spaces(still, IMAGES).names == expected
