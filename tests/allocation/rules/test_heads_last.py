"""`heads-last`: heads stay whole until half of the other channels are gone."""

from __future__ import annotations

import pytest
from tests.allocation.conftest import MakeProblem
from tests.pretrained.models import build, inputs

import interpress
from interpress import Analysis, Method
from interpress.allocation.paths import fit_budget
from interpress.allocation.problem import Problem
from interpress.allocation.rules.constant import constant
from interpress.allocation.rules.heads_last import heads_last
from interpress.pipeline.steps import state_problem
from interpress.progress import display
from interpress.selection.orders import order_all

METHOD = Method(allocation="heads-last", refit=False)


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return interpress.analyze(build("llama"), [inputs("llama", 200)], progress=False)


def problem_for(analysis: Analysis, allocation: str) -> Problem:
    with display(False) as bars:
        orders = order_all(analysis.study, "weights", bars)
    return state_problem(analysis.study, orders, None, analysis.options, allocation=allocation)


def test_without_heads_it_is_the_constant_allocation(problem_of: MakeProblem) -> None:
    assert list(heads_last(problem_of("heads-last"))) == list(constant(problem_of("constant")))


def test_heads_shrink_only_after_half_of_the_neurons(analysis: Analysis) -> None:
    problem = problem_for(analysis, "heads-last")
    heads = [space.name for space in problem.spaces.shrinkable if space.heads]
    neurons = [name for name in problem.allowed if name not in heads]
    full = problem.full()
    seen = set()
    for widths in heads_last(problem):
        fraction = max(widths[name] / full[name] for name in neurons)
        least = min(widths[name] / full[name] for name in heads)
        assert least >= min(1.0, 2 * fraction) - 1e-2
        seen.add(least)
    assert heads
    assert len(seen) > 1


def test_a_budget_that_neurons_can_meet_leaves_all_heads(analysis: Analysis) -> None:
    result = analysis.compress(flops=0.9, method=METHOD, progress=False)
    heads = [space.name for space in result.spaces.shrinkable if space.heads]
    assert all(result.widths[name] == result.spaces[name].size for name in heads)
    problem = problem_for(analysis, "constant")
    uniform = fit_budget(problem, constant(problem), 0.9, "flops")
    assert sum(result.widths[name] for name in heads) >= sum(uniform[name] for name in heads)
