"""What is tried makes mistakes visible: different widths, random `T`, perturbed weights."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from interpress import ChannelSpace
from interpress.dryrun.inputs import (
    last_of_every_cell,
    perturbed,
    random_interpolations,
    scale_to_unit_variation,
    trial_kept,
    weights_of,
)
from interpress.graph.capture import capture
from interpress.graph.example import Example
from interpress.spaces.from_program import spaces_of
from interpress.surgery.cut import Cut


def test_spaces_that_share_a_weight_keep_different_numbers() -> None:
    layers = [layer for _ in range(4) for layer in (nn.Linear(6, 6), nn.ReLU())]
    spaces = spaces_of(capture(nn.Sequential(*layers, nn.Linear(6, 3)), torch.randn(2, 6)))
    names = [space.name for space in spaces.shrinkable]
    widths = [len(index) for index in trial_kept(spaces, names).values()]
    assert all(1 <= width < 6 for width in widths)
    assert all(a != b for a, b in itertools.pairwise(widths))


def test_the_last_channels_of_every_cell_are_kept() -> None:
    space = ChannelSpace("conv", 6, torch.tensor([0, 0, 0, 1, 1, 1]), 2)
    assert last_of_every_cell(space, 1).tolist() == [2, 5]
    assert last_of_every_cell(space, 2).tolist() == [1, 2, 4, 5]


def test_random_interpolations_are_zero_between_groups() -> None:
    model = nn.Sequential(nn.Conv1d(3, 6, 1), nn.ReLU(), nn.Conv1d(6, 4, 1, groups=2))
    spaces = spaces_of(capture(model, torch.randn(2, 3, 5)))
    cut = Cut(spaces, {"0": [0, 1, 3, 4]})
    (T,) = random_interpolations(cut).values()
    assert T.shape == (4, 6)
    assert bool((T[:2, :3] != 0).all())
    assert not bool(T[:2, 3:].any())
    assert Cut(spaces, cut.kept, random_interpolations(cut))  # it passes the checks
    assert random_interpolations(Cut(spaces, {})) == {}


def test_perturbed_weights_are_not_zero() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
    nn.init.zeros_(model[0].weight)
    copy = perturbed(model)
    assert all(bool((parameter != 0).all()) for parameter in copy.parameters())
    assert not bool(model[0].weight.any())
    same = perturbed(model)
    assert torch.equal(same[0].weight, copy[0].weight)


def test_scaled_weights_let_every_layer_depend_on_the_input() -> None:
    torch.manual_seed(0)
    shared = nn.Linear(6, 6)
    layers = [nn.Linear(6, 6), shared, nn.ReLU(), shared, nn.Linear(6, 5), nn.Linear(5, 4)]
    model = nn.Sequential(*layers)
    with torch.no_grad():
        for layer in (layers[0], layers[4], layers[5]):
            layer.weight.mul_(1e-4)
    x = torch.randn(8, 6)
    bias = model[0].bias.clone()

    def variation() -> float:
        y = model(x).detach()
        return float((y[1:] - y[:-1]).square().mean().sqrt())

    assert variation() < 1e-10
    scale_to_unit_variation(model, Example((x,)))
    assert abs(variation() - 1) < 1e-3
    assert torch.equal(model[0].bias, bias)
    assert not model[0]._forward_hooks
    scale_to_unit_variation(model, Example((x[:1],)))  # one example has no variation
    assert abs(variation() - 1) < 1e-3


def test_weights_of_a_space_are_those_of_all_roles() -> None:
    cells = torch.zeros(2, dtype=torch.long)
    space = ChannelSpace(
        "a", 2, cells, 1, heads=False, producers=("p",), carriers=("c",), consumers=("r",)
    )
    assert weights_of(space) == ("p", "c", "r")
