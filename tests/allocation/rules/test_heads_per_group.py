"""`heads-per-group`: every group keeps its key and value, and loses query heads."""

from __future__ import annotations

import pytest
from tests.allocation.conftest import MakeProblem
from tests.allocation.test_heads import analysis, problem_for  # noqa: F401

import interpress
from interpress.allocation.heads import heads_of_groups, other_heads
from interpress.allocation.registry import ALLOCATIONS
from interpress.allocation.rules.constant import constant
from interpress.allocation.rules.heads_per_group import heads_per_group


def test_without_groups_it_is_the_constant_allocation(problem_of: MakeProblem) -> None:
    path = list(heads_per_group(problem_of("heads-per-group")))
    assert path == list(constant(problem_of("constant")))


def test_heads_follow_the_neurons_and_groups_wait(
    analysis: interpress.Analysis,  # noqa: F811
) -> None:
    problem = problem_for(analysis, "heads-per-group")
    members, groups = heads_of_groups(problem), other_heads(problem)
    neurons = set(problem.allowed) - members - groups
    full = problem.full()
    for widths in heads_per_group(problem):
        fraction = max(widths[name] / full[name] for name in neurons)
        for name in members:  # of four heads per group, the nearest to this fraction
            kept = 4 * widths[name] / full[name]
            assert kept == max(2, kept)
            if fraction > 0.51:
                assert abs(kept - 4 * fraction) <= 0.5 + 4 / 80  # of 80 neurons
        if fraction > 0.51:
            assert all(widths[name] == full[name] for name in groups)


def test_it_is_compared_only_where_heads_are_grouped(
    analysis: interpress.Analysis,  # noqa: F811
    demo_analysis: interpress.Analysis,
) -> None:
    assert ALLOCATIONS["heads-per-group"].differs(analysis.spaces)
    assert ALLOCATIONS["heads-last"].differs(analysis.spaces)
    for name in ("heads-per-group", "heads-last"):
        assert not ALLOCATIONS[name].differs(demo_analysis.spaces)
    assert ALLOCATIONS["constant"].differs(demo_analysis.spaces)


@pytest.mark.parametrize("flops", [0.9, 0.8])
def test_a_budget_is_met(
    flops: float,
    analysis: interpress.Analysis,  # noqa: F811
) -> None:
    method = interpress.Method(allocation="heads-per-group", refit=False)
    result = analysis.compress(flops=flops, method=method, progress=False)
    assert result.flops <= flops
