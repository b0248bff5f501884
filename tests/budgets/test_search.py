"""Bisection over the FLOPs of networks that an allocation offers."""

from __future__ import annotations

from typing import Any

import pytest

from interpress import Analysis, ArgumentError, Method
from interpress.allocation.problem import Widths
from interpress.budgets.search import Search
from interpress.pipeline.options import Options
from interpress.pipeline.steps import state_problem
from interpress.progress import display
from interpress.selection.orders import order_all

METHOD = Method(selection="weights", allocation="marginal", refit=False)


@pytest.fixture(scope="module")
def search(demo_analysis: Analysis) -> Search:
    study = demo_analysis.study
    with display(False) as bars:
        orders = order_all(study, METHOD.selection, bars)
        problem = state_problem(study, orders, None, Options(method=METHOD))
        return Search(study, problem, METHOD, 1.0, bars)


def flops(search: Search, widths: Widths) -> float:
    return search.problem.meter.total(widths) / search.problem.meter.total({})


@pytest.mark.parametrize("limit", [0.2, 0.5, 0.83])
@pytest.mark.parametrize("smaller_if_within", [True, False])
def test_the_search_closes_in_on_the_border(
    search: Search, limit: float, smaller_if_within: bool
) -> None:
    """The border is at `limit` of the FLOPs: above it, or below it, networks are within."""

    def trial(widths: Widths) -> tuple[Any, float, bool]:
        fraction = flops(search, widths)
        return widths, fraction, (fraction >= limit) == smaller_if_within

    widths: Any = search.bisect(
        "x=1", trial, smaller_if_within=smaller_if_within, remedy="change it"
    )
    assert abs(flops(search, widths) - limit) < 0.02
    assert (flops(search, widths) >= limit) == smaller_if_within


def test_if_no_network_is_within_the_nearest_is_named(search: Search) -> None:
    with pytest.raises(ArgumentError, match=r"x=1 cannot be reached: the nearest of 7.*change it"):
        search.bisect(
            "x=1", lambda widths: (None, 0.0, False), smaller_if_within=True, remedy="change it"
        )


def test_widths_are_those_of_the_allocation_or_of_one_fraction(search: Search) -> None:
    full = search.problem.full()
    assert next(iter(search.path())) == full
    assert search.constant_widths(0.5) == {name: size // 2 for name, size in full.items()}
    assert 0.39 < flops(search, search.widths_within(0.4, "flops")) <= 0.4


def test_a_network_is_built_at_the_widths(search: Search) -> None:
    widths = search.constant_widths(0.5)
    network = search.build(widths)
    assert network.plan.widths == widths
    assert network.refit is None
    assert search.build(widths, refit=True).refit is not None
