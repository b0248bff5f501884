"""Of groups of heads and the heads within them, one waits for the other."""

from __future__ import annotations

import pytest
from tests.pretrained.models import build, inputs

import interpress
from interpress import Analysis
from interpress.allocation.heads import SPARED, heads_of_groups, other_heads
from interpress.allocation.problem import Problem
from interpress.allocation.registry import ALLOCATIONS
from interpress.allocation.rules.constant import at_fraction
from interpress.pipeline.steps import state_problem
from interpress.progress import display
from interpress.selection.orders import order_all


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return interpress.analyze(build("llama_of_four"), [inputs("llama", 200)], progress=False)


def problem_for(analysis: Analysis, allocation: str) -> Problem:
    with display(False) as bars:
        orders = order_all(analysis.study, "weights", bars)
    return state_problem(analysis.study, orders, None, analysis.options, allocation=allocation)


def test_heads_within_groups_wait_for_the_groups(analysis: Analysis) -> None:
    problem = problem_for(analysis, "constant")
    members, groups = heads_of_groups(problem), other_heads(problem)
    assert {name.rpartition(":")[2] for name in members} == {"heads-per-group"}
    assert {name.rpartition(":")[2] for name in groups} == {"heads"}
    widths = at_fraction(problem, SPARED)
    assert all(widths[name] == problem.spaces[name].size for name in members)
    assert all(widths[name] == SPARED * problem.spaces[name].size for name in groups)


def test_they_do_not_wait_if_the_groups_stay_whole(analysis: Analysis) -> None:
    problem = problem_for(analysis, "constant")
    groups = other_heads(problem)
    reasons = dict.fromkeys(groups, "excluded")
    alone = Problem(
        problem.spaces.freeze(reasons), problem.orders, problem.losses, problem.meter,
        {name: widths for name, widths in problem.allowed.items() if name not in groups},
    )  # fmt: skip
    assert heads_of_groups(alone) == set()
    assert other_heads(alone) == heads_of_groups(problem)


@pytest.mark.parametrize("name", ["constant", "heads-last", "heads-per-group", "measured"])
def test_paths_with_groups_end_at_the_smallest_widths(name: str, analysis: Analysis) -> None:
    problem = problem_for(analysis, name if name != "measured" else "marginal")
    path = list(ALLOCATIONS[name].path(problem))
    assert path[0] == problem.full()
    assert path[-1] == {space: sizes[-1] for space, sizes in problem.allowed.items()}
    totals = [problem.meter.total(widths) for widths in path]
    assert totals == sorted(totals, reverse=True)
    assert len(set(totals)) == len(totals)
