"""The one budget among a user's arguments."""

from __future__ import annotations

import pytest

from interpress import ArgumentError
from interpress.budgets.budget import Budget
from interpress.budgets.registry import BUDGETS


def test_none_means_not_given() -> None:
    arguments = {**dict.fromkeys(BUDGETS), "params": 0.4}
    assert Budget.from_arguments(arguments) == Budget("params", 0.4)


@pytest.mark.parametrize("arguments", [{}, {"flops": None}])
def test_no_budget_lists_all(arguments: dict[str, float | None]) -> None:
    with pytest.raises(
        ArgumentError, match=f"exactly one budget of {', '.join(BUDGETS)}; got none"
    ):
        Budget.from_arguments(arguments)


def test_two_budgets_are_repeated() -> None:
    with pytest.raises(ArgumentError, match=r"got flops=0\.5 and width=0\.7"):
        Budget.from_arguments({"flops": 0.5, "width": 0.7})


def test_an_argument_that_is_no_budget_is_named_before_anything_else() -> None:
    with pytest.raises(
        ArgumentError, match=r"speed= is not an argument.*the budgets are agreement"
    ):
        Budget.from_arguments({"flops": 0.5, "speed": 2.0})
