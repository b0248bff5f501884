"""The taps that are measured, and the dense layers that read them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from interpress import find_spaces
from interpress.calibration.consumers import dense_consumers, shrinkable_taps
from interpress.spaces.spaces import Spaces


class Branches(nn.Module):
    """One hidden layer, read by two others."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.left, self.right = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        return self.left(x) + self.right(x)


class Shared(nn.Module):
    """A layer that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.twice = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.twice(self.first(x).relu()) + self.twice(self.first(-x).tanh())


def weights_of(spaces: Spaces) -> set[str]:
    return {dense.weight for dense in dense_consumers(spaces, shrinkable_taps(spaces)).values()}


def test_every_consumer_of_a_shrinkable_space_has_a_tap() -> None:
    spaces = find_spaces(Branches(), torch.randn(4, 6))
    assert [tap.size for tap in shrinkable_taps(spaces)] == [8, 8]
    assert weights_of(spaces) == {"left.weight", "right.weight"}


def test_frozen_spaces_are_not_measured() -> None:
    spaces = find_spaces(Branches(), torch.randn(4, 6), exclude=["first"])
    assert shrinkable_taps(spaces) == []


def test_a_layer_that_is_called_twice_is_not_one_regression() -> None:
    spaces = find_spaces(Shared(), torch.randn(4, 6))
    (tap,) = shrinkable_taps(spaces)
    assert len(tap.sites) == 2
    assert weights_of(spaces) == set()


def test_a_grouped_convolution_is_a_dense_consumer() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 6, 1, groups=2))
    spaces = find_spaces(model, torch.randn(4, 3, 5, 5))
    (dense,) = dense_consumers(spaces, shrinkable_taps(spaces)).values()
    assert (dense.weight, dense.groups) == ("2.weight", 2)
