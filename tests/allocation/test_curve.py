"""The predicted trade-off along a path."""

from __future__ import annotations

import pytest
from tests.allocation.conftest import MakeProblem

from interpress.allocation.curve import point_at, trade_off
from interpress.allocation.registry import ALLOCATIONS


@pytest.mark.parametrize("points", [2, 7, 50])
def test_points_are_spread_over_the_path_with_both_ends(
    points: int, problem_of: MakeProblem
) -> None:
    problem = problem_of("marginal")
    path = list(ALLOCATIONS["marginal"].path(problem))
    curve = trade_off(problem, iter(path), points)
    assert len(curve) == min(points, len(path))
    assert curve[0].widths == path[0]
    assert curve[-1].widths == path[-1]
    assert (curve[0].flops, curve[0].params, curve[0].loss) == (1.0, 1.0, 0.0)
    assert all(point.widths in path for point in curve)


def test_a_point_has_the_cost_and_the_loss_of_its_widths(problem_of: MakeProblem) -> None:
    problem = problem_of("marginal")
    widths = {name: size // 2 for name, size in problem.full().items()}
    point = point_at(problem, widths)
    before, after = problem.spaces.cost(), problem.spaces.cost(widths)
    assert point.flops == pytest.approx(after.flops / before.flops)
    assert point.params == pytest.approx(after.parameters / before.parameters)
    assert point.loss == problem.loss(widths)
