"""Allocation problems of the digits network that comes with the package."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interpress import Analysis
from interpress.allocation.effects import Effects, measure_effects
from interpress.allocation.problem import Problem, WidthLimits
from interpress.allocation.registry import ALLOCATIONS
from interpress.progress import display
from interpress.selection.orders import Orders, order_all

MakeProblem = Callable[..., Problem]


@pytest.fixture(scope="session")
def orders(demo_analysis: Analysis) -> Orders:
    with display(False) as bars:
        return order_all(demo_analysis.study, "weights", bars)


@pytest.fixture(scope="session")
def effects(demo_analysis: Analysis, orders: Orders) -> Effects:
    with display(False) as bars:
        return measure_effects(demo_analysis.study, orders, bars)


@pytest.fixture(scope="session")
def problem_of(demo_analysis: Analysis, orders: Orders, effects: Effects) -> MakeProblem:
    """A function from the name of an allocation to its problem."""
    spaces = demo_analysis.spaces

    def make(
        name: str, resource: str = "flops", limits: WidthLimits | None = None, step: float = 0.05
    ) -> Problem:
        limits = limits or WidthLimits()
        return Problem(
            spaces,
            orders,
            ALLOCATIONS[name].losses(orders, effects),
            spaces.cost.meter(resource),
            {space: limits.widths(spaces[space]) for space in orders},
            step,
        )

    return make
