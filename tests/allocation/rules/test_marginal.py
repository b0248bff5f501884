"""`marginal`: the least predicted loss per cost saved."""

import itertools

from tests.allocation.conftest import MakeProblem

from interpress.allocation.problem import WidthLimits
from interpress.allocation.rules.constant import at_fraction
from interpress.allocation.rules.marginal import marginal


def test_every_step_has_the_least_loss_per_cost_saved(problem_of: MakeProblem) -> None:
    problem = problem_of("marginal", limits=WidthLimits(round_to=8))

    def ratio(before: dict[str, int], after: dict[str, int]) -> float:
        saved = problem.meter.total(before) - problem.meter.total(after)
        return (problem.loss(after) - problem.loss(before)) / saved

    path = list(marginal(problem))
    assert len(path) > 5
    for before, after in itertools.pairwise(path):
        one_step = [
            {**before, name: narrower[0]}
            for name, allowed in problem.allowed.items()
            if (narrower := [w for w in allowed if w < before[name]])
        ]
        assert ratio(before, after) <= min(ratio(before, other) for other in one_step) * (1 + 1e-9)


def test_less_is_lost_than_at_a_constant_fraction(problem_of: MakeProblem) -> None:
    problem = problem_of("marginal")
    constant = at_fraction(problem, 0.7)
    cost = problem.meter.total(constant)
    widths = next(widths for widths in marginal(problem) if problem.meter.total(widths) <= cost)
    assert problem.loss(widths) < problem.loss(constant)
