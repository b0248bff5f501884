"""The table of budgets.

A budget turns a number that a user asks for into a network. To add one, write a file in `rules/`
with one function:

    @budget("flops", meaning="fraction of the FLOPs to keep", example=0.5)
    def flops(search: Search, value: float) -> Network: ...

The command line lists budgets in `--help` without importing torch, so these files import what they
need for computing inside the function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interpress.registry import Registry

if TYPE_CHECKING:
    from interpress.budgets.search import Search
    from interpress.network.network import Network

Solve = Callable[["Search", float], "Network"]
Prepare = Callable[[Any, bool], Any]
"""`prepare(method, given_by_name)` returns the method to use."""


@dataclass(frozen=True)
class BudgetRule:
    """One kind of budget."""

    meaning: str
    """What the number is, for `--help` and errors."""
    example: float
    solve: Solve
    resource: str
    """What the allocation saves: "flops" or "params"."""
    below_one: bool
    """Whether the number must be below 1, rather than at most 1."""
    above_one: bool
    """Whether the number must be at least 1 instead."""
    prepare: Prepare
    takes_low_rank: bool = False
    """Whether layers may become two within this budget."""


BUDGETS: Registry[BudgetRule] = Registry("budget", "interpress.budgets.rules", dashes=False)


def budget(
    name: str,
    *,
    meaning: str,
    example: float,
    resource: str = "flops",
    below_one: bool = False,
    above_one: bool = False,
    prepare: Prepare = lambda method, named: method,
    takes_low_rank: bool = False,
) -> Callable[[Solve], Solve]:
    """Return a decorator that registers a function as the budget of this name."""

    def add(solve: Solve) -> Solve:
        rule = BudgetRule(
            meaning, example, solve, resource, below_one, above_one, prepare, takes_low_rank
        )
        BUDGETS.register(name)(rule)
        return solve

    return add
