"""What every allocation promises: a path of allowed widths, ever cheaper, for any budget."""

from __future__ import annotations

import itertools

import pytest
from tests.allocation.conftest import MakeProblem

from interpress.allocation.paths import fit_budget
from interpress.allocation.problem import WidthLimits
from interpress.allocation.registry import ALLOCATIONS

every = pytest.mark.parametrize("name", ALLOCATIONS)
LIMITS = [WidthLimits(), WidthLimits(round_to=8, min_width=16)]


@every
@pytest.mark.parametrize("resource", ["flops", "params"])
@pytest.mark.parametrize("limits", LIMITS)
def test_a_path_goes_from_the_full_widths_down_to_the_smallest(
    name: str, resource: str, limits: WidthLimits, problem_of: MakeProblem
) -> None:
    problem = problem_of(name, resource, limits)
    path = list(ALLOCATIONS[name].path(problem))
    assert (
        path[0] == problem.full() == {space: sizes[0] for space, sizes in problem.allowed.items()}
    )
    assert path[-1] == {space: sizes[-1] for space, sizes in problem.allowed.items()}
    for wider, narrower in itertools.pairwise(path):
        assert all(narrower[space] in problem.allowed[space] for space in problem.allowed)
        assert all(narrower[space] <= wider[space] for space in problem.allowed)
        assert problem.meter.total(narrower) < problem.meter.total(wider)
        assert problem.loss(narrower) >= problem.loss(wider)


@every
@pytest.mark.parametrize("fraction", [1.0, 0.9, 0.5, 0.2])
def test_a_budget_is_met_and_used_up(name: str, fraction: float, problem_of: MakeProblem) -> None:
    problem = problem_of(name)
    widths = fit_budget(problem, ALLOCATIONS[name].path(problem), fraction, "flops")
    budget = fraction * problem.meter.total({})
    spent = problem.meter.total(widths)
    assert spent <= budget
    for space, width in widths.items():
        index = problem.allowed[space].index(width)
        if index:
            wider = {**widths, space: problem.allowed[space][index - 1]}
            assert problem.meter.total(wider) > budget  # no space can be widened any more


@every
def test_the_path_is_the_same_every_time(name: str, problem_of: MakeProblem) -> None:
    first, again = (list(ALLOCATIONS[name].path(problem_of(name))) for _ in range(2))
    assert first == again


@every
def test_losses_never_increase_with_the_width(name: str, problem_of: MakeProblem) -> None:
    problem = problem_of(name)
    assert problem.losses.keys() == problem.allowed.keys()
    for space, losses in problem.losses.items():
        assert losses.shape == (problem.spaces[space].size + 1,)
        assert bool((losses.diff() <= 0).all())
        assert bool((losses >= 0).all())
