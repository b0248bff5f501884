"""One option of `compress` per budget, from the table of budgets."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter
from typing import Annotated

import typer

from interpress.budgets.budget import Budget
from interpress.budgets.registry import BUDGETS


def budget_parameters() -> list[Parameter]:
    """Return one keyword parameter per budget, annotated for Typer."""
    parameters = []
    for name, rule in BUDGETS.items():
        meaning = rule.meaning[:1].upper() + rule.meaning[1:]
        option = typer.Option(
            f"--{name.replace('_', '-')}",
            help=f"{meaning}; for example {rule.example:g}.",
            rich_help_panel="Budget (give exactly one)",
        )
        parameters.append(
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[float | None, option],
            )
        )
    return parameters


def budget_from(values: Mapping[str, float | None]) -> Budget:
    """Return the one budget that was given, from the values of these parameters."""
    return Budget.from_arguments(values)
