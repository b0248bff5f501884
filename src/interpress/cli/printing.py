"""How the commands print tables and JSON."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from interpress.evaluation.tally import Agreement


def model_output_aside(as_json: bool) -> contextlib.AbstractContextManager[Any]:
    """Send what a model prints to standard error, if standard output is for JSON."""
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()


def print_json(value: dict[str, Any]) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=1))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str | None = None
) -> None:
    """Print a table that fits 80 columns."""
    table = Table(caption=caption)
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    Console(width=80).print(table)


def agreement_record(agreement: Agreement) -> dict[str, Any]:
    """Return an agreement as it is printed in JSON."""
    return {
        "agreement": agreement.agreement,
        "interval": agreement.interval,
        "decisions": agreement.decisions,
        "examples": agreement.examples,
        "divergence": agreement.divergence,
        "output_error": agreement.output_error,
        "accuracy": agreement.accuracy,
        "output": agreement.output,
        "others": [output.record() for output in agreement.others],
        "tokens": None if agreement.tokens is None else asdict(agreement.tokens),
        "flips": [flip.index for flip in agreement.flips],
    }
