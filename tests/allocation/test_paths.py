"""Greedy paths, and the point of a path that fits a budget."""

from __future__ import annotations

import pytest
from tests.allocation.conftest import MakeProblem

from interpress import ArgumentError
from interpress.allocation.paths import fit_budget, greedy_path
from interpress.allocation.problem import WidthLimits, Widths


def test_every_step_has_the_lowest_score_of_all_moves(problem_of: MakeProblem) -> None:
    problem = problem_of("marginal", limits=WidthLimits(round_to=8))

    def moves(name: str, width: int) -> list[int]:
        return [w for w in problem.allowed[name] if w < width][:2]

    def score(widths: Widths, name: str, width: int, saved: float) -> float:
        losses = problem.losses[name]
        return float(losses[width] - losses[widths[name]]) / saved

    widths = problem.full()
    steps = 0
    for following in list(greedy_path(problem, moves, score))[1:]:
        candidates = {
            (name, width): score(widths, name, width, problem.meter.saved(widths, name, width))
            for name in widths
            for width in moves(name, widths[name])
        }
        (changed,) = [name for name in widths if following[name] != widths[name]]
        assert candidates[changed, following[changed]] == min(candidates.values())
        widths, steps = following, steps + 1
    assert steps > 5


def test_a_budget_that_no_width_reaches_says_what_can_be_reached(problem_of: MakeProblem) -> None:
    problem = problem_of("marginal", limits=WidthLimits(min_width=31))
    smallest = {name: sizes[-1] for name, sizes in problem.allowed.items()}
    left = problem.meter.total(smallest) / problem.meter.total({})
    with pytest.raises(
        ArgumentError, match=rf"flops=0.2 cannot be reached.*{left:.3f} of the flops"
    ):
        fit_budget(problem, iter([problem.full(), smallest]), 0.2, "flops")


def test_the_first_point_within_the_budget_is_widened(problem_of: MakeProblem) -> None:
    problem = problem_of("marginal")
    smallest = {name: sizes[-1] for name, sizes in problem.allowed.items()}
    widths = fit_budget(problem, iter([problem.full(), smallest]), 0.5, "flops")
    assert all(widths[name] >= smallest[name] for name in smallest)
    assert 0.49 < problem.meter.total(widths) / problem.meter.total({}) <= 0.5
