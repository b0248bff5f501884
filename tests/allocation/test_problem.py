"""Which widths are allowed, and what a problem adds up."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.allocation.conftest import MakeProblem

from interpress import ArgumentError, ChannelSpace
from interpress.allocation.problem import WidthLimits


def space(size: int, cells: int = 1) -> ChannelSpace:
    """Return a space that keeps equally many channels of every cell."""
    return ChannelSpace("space", size, torch.arange(size) % cells, step=cells)


@pytest.mark.parametrize(
    ("limits", "size", "cells", "allowed"),
    [
        (WidthLimits(), 4, 1, [4, 3, 2, 1]),
        (WidthLimits(round_to=4), 12, 1, [12, 8, 4]),
        (WidthLimits(round_to=4), 10, 1, [10, 8, 4]),  # the full size is always allowed
        (WidthLimits(min_width=3), 4, 1, [4, 3]),
        (WidthLimits(min_width=9), 4, 1, [4]),
        (WidthLimits(), 12, 3, [12, 9, 6, 3]),  # equally many of every cell
        (WidthLimits(round_to=2), 12, 3, [12, 6]),
        (WidthLimits(round_to=16), 8, 1, [8]),
    ],
)
def test_allowed_widths(limits: WidthLimits, size: int, cells: int, allowed: list[int]) -> None:
    assert limits.widths(space(size, cells)) == allowed


@pytest.mark.parametrize("name", ["round_to", "min_width"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "8", True, None])
def test_limits_are_whole_numbers_of_at_least_one(name: str, value: Any) -> None:
    with pytest.raises(
        ArgumentError, match=rf"{name}={value!r}; give a whole number of at least 1"
    ):
        WidthLimits(**{name: value})


def test_the_loss_is_summed_over_spaces(problem_of: MakeProblem) -> None:
    problem = problem_of("marginal")
    assert problem.loss(problem.full()) == 0.0
    half = {name: size // 2 for name, size in problem.full().items()}
    expected = sum(float(problem.losses[name][width]) for name, width in half.items())
    assert problem.loss(half) == pytest.approx(expected)
    assert expected > 0
