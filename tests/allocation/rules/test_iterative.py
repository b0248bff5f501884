"""`iterative`: cut a fraction of the layer with the lowest `|r_kk / r_11| / FLOPs`."""

import itertools

import pytest
from tests.allocation.conftest import MakeProblem

from interpress.allocation.rules.iterative import iterative


@pytest.mark.parametrize("step", [0.05, 0.3])
def test_every_step_cuts_the_fraction_of_the_layer_with_the_lowest_score(
    step: float, problem_of: MakeProblem
) -> None:
    problem = problem_of("iterative", step=step)
    path = list(iterative(problem))
    assert len(path) > 20
    for before, after in itertools.pairwise(path):
        following = {n: w - max(1, round(step * w)) for n, w in before.items() if w > 1}
        scores = {
            name: float(problem.orders[name].proxy[width])
            / problem.meter.dependent_cost(before, name)
            for name, width in following.items()
        }
        best = min(scores, key=lambda name: (scores[name], name))
        assert after == {**before, best: following[best]}
