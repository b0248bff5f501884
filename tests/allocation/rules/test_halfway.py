"""`halfway`: the geometric mean of the measured and the constant widths at the same cost."""

from __future__ import annotations

import math

import pytest
from tests.allocation.conftest import MakeProblem

from interpress.allocation.problem import Problem, WidthLimits, Widths
from interpress.allocation.rules.constant import constant
from interpress.allocation.rules.halfway import halfway
from interpress.allocation.rules.measured import measured


def mean(problem: Problem, first: Widths, second: Widths) -> Widths:
    """Return the allowed widths that are nearest to the geometric means."""
    return {
        name: min(allowed, key=lambda w: abs(w - math.sqrt(first[name] * second[name])))
        for name, allowed in problem.allowed.items()
    }


@pytest.mark.parametrize("round_to", [1, 8])
@pytest.mark.parametrize("resource", ["flops", "params"])
def test_every_point_is_a_mean_of_two_points_of_the_same_cost(
    problem_of: MakeProblem, resource: str, round_to: int
) -> None:
    problem = problem_of("halfway", resource, WidthLimits(round_to=round_to))
    total = problem.meter.total
    uniform = list(constant(problem))
    means = []
    for point in measured(problem):
        wide_enough = [widths for widths in uniform if total(widths) >= total(point)]
        means.append(mean(problem, point, wide_enough[-1]))
    *points, last = halfway(problem)
    assert len(points) > 3
    for widths in points:
        assert widths in means
    assert last == {name: allowed[-1] for name, allowed in problem.allowed.items()}


def test_it_lies_between_the_two(problem_of: MakeProblem) -> None:
    """At about half of the cost, every width lies between those of the two allocations."""
    problem = problem_of("halfway")
    total = problem.meter.total
    half = total({}) / 2
    first, second, between = (
        next(widths for widths in path(problem) if total(widths) <= half)
        for path in (measured, constant, halfway)
    )
    assert first != second
    for name, width in between.items():
        low, high = sorted((first[name], second[name]))
        assert low - 2 <= width <= high + 2
