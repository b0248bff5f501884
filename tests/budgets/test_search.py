"""Widths along the paths of allocations, their comparison, and bisection over the FLOPs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from interpress import Analysis, ArgumentError, Method
from interpress.allocation.paths import fit_budget
from interpress.allocation.problem import Widths
from interpress.allocation.registry import ALLOCATIONS
from interpress.budgets import search as module
from interpress.budgets.search import Search
from interpress.network.compare import Comparison
from interpress.pipeline.options import Options
from interpress.pipeline.steps import state_problem
from interpress.progress import display
from interpress.selection.orders import Orders, order_all

METHOD = Method(selection="weights", allocation="marginal", refit=False)


@pytest.fixture(scope="module")
def search(demo_analysis: Analysis) -> Search:
    study = demo_analysis.study
    with display(False) as bars:
        orders = order_all(study, METHOD.selection, bars)
        options = Options(method=METHOD)
        problems = {
            name: state_problem(study, orders, None, options, allocation=name)
            for name in ("marginal", "constant")
        }
        return Search(study, problems, METHOD, 1.0, bars)


def flops(search: Search, widths: Widths) -> float:
    return search.problem.meter.total(widths) / search.problem.meter.total({})


@dataclass(frozen=True)
class FakeNetwork:
    """Stands in for a network in a bisection."""

    widths: Widths
    comparison: Comparison | None = None


@pytest.mark.parametrize("limit", [0.2, 0.5, 0.83])
@pytest.mark.parametrize("smaller_if_within", [True, False])
def test_the_search_closes_in_on_the_border(
    search: Search, limit: float, smaller_if_within: bool
) -> None:
    """The border is at `limit` of the FLOPs: above it, or below it, networks are within."""

    def trial(widths: Widths) -> tuple[Any, float, bool]:
        fraction = flops(search, widths)
        return FakeNetwork(widths), fraction, (fraction >= limit) == smaller_if_within

    network: Any = search.bisect(
        "x=1", trial, smaller_if_within=smaller_if_within, remedy="change it"
    )
    assert abs(flops(search, network.widths) - limit) < 0.02
    assert (flops(search, network.widths) >= limit) == smaller_if_within
    assert network.comparison is not None


def test_if_no_network_is_within_the_nearest_is_named(search: Search) -> None:
    def trial(widths: Widths) -> tuple[Any, float, bool]:
        return FakeNetwork(widths), 0.0, False

    with pytest.raises(ArgumentError, match=r"x=1 cannot be reached: the nearest of 7.*change it"):
        search.bisect("x=1", trial, smaller_if_within=True, remedy="change it")


def test_widths_are_those_of_the_allocation_or_of_one_fraction(search: Search) -> None:
    full = search.problem.full()
    assert search.problem is search.problems["marginal"]
    assert search.constant_widths(0.5) == {name: size // 2 for name, size in full.items()}
    usual = search.usual_widths(0.4, "flops")
    assert 0.39 < flops(search, usual) <= 0.4
    path = ALLOCATIONS["marginal"].path(search.problem)
    assert usual == fit_budget(search.problem, path, 0.4, "flops")


def test_the_best_allocation_is_the_one_the_comparison_names(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prefers(best: str) -> None:
        monkeypatch.setattr(
            module,
            "compare",
            lambda study, plans, *_: Comparison(best, dict.fromkeys(plans, 1.0)),
        )

    for best in ("marginal", "constant"):
        prefers(best)
        choice = search.best_within(0.4, "flops")
        assert choice.allocation == best
        assert choice.widths == search._widths_within(best, 0.4, "flops")
        assert choice.comparison is not None
        network = search.build_best(0.4, "flops")
        assert network.plan.widths == choice.widths
        assert network.comparison == choice.comparison


def test_without_data_nothing_is_compared(search: Search) -> None:
    loaded = replace(search, study=replace(search.study, data=None))
    choice = loaded.best_within(0.4, "flops")
    assert (choice.allocation, choice.comparison) == ("marginal", None)


def test_untrusted_spaces_shrink_only_if_they_must(search: Search) -> None:
    full = search.problem.full()
    name = max(full, key=lambda space: full[space])
    orders = Orders("weights", search.problem.orders.by_space, search.problem.orders.profiles)
    vars(orders)["untrusted"] = {name: "too few rows"}
    problems = {
        allocation: replace(problem, orders=orders)
        for allocation, problem in search.problems.items()
    }
    careful = replace(search, problems=problems)
    assert careful.usual_widths(0.7, "flops")[name] == full[name]
    least = flops(search, dict.fromkeys(full, 1))
    assert careful.usual_widths(1.5 * least, "flops")[name] < full[name]


def test_a_network_is_built_at_the_widths(search: Search) -> None:
    widths = search.constant_widths(0.5)
    network = search.build(widths)
    assert network.plan.widths == widths
    assert network.refit is None
    assert search.build(widths, refit=True).refit is not None
