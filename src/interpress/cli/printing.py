"""How the commands print tables and JSON."""

from __future__ import annotations

import contextlib
import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from interpress.evaluation.tally import Agreement
from interpress.report.verdict import Verdict
from interpress.tables.text_table import WIDTH

_LONGEST_RULE = 240  # characters: the report has the whole text


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


def evaluation_text(evaluated: Mapping[str, Any]) -> str:
    """Return what the evaluation data showed, as it is recorded in `plan.json`."""
    text = "\n".join([f"on {evaluated['on']}: {evaluated['text']}", *evaluated["scores"]])
    if evaluated["accuracy"] is not None:
        before, after = evaluated["accuracy"]
        text += f"\naccuracy {before:.2%} before, {after:.2%} after"
    return text


def verdict_text(verdict: Verdict) -> str:
    """Return the verdict and the rules that did not hold, in lines of at most 80 columns."""
    lines = [f"Verdict: {verdict.headline}"]
    for check in verdict.checks:
        if not check.passed:
            text = f"- {check.mark[1]}: {check.rule} {check.found} {check.hint}".replace(
                "\xa0", " "
            )
            lines.append(textwrap.shorten(text, _LONGEST_RULE, placeholder=" ..."))
    return "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines)


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as it is printed in JSON, with the rules that did not hold."""
    return {
        "level": verdict.level,
        "headline": verdict.headline,
        "rules": [
            {"rule": check.rule, "found": check.found, "result": check.mark[1]}
            for check in verdict.checks
            if not check.passed
        ],
        "to_do": verdict.to_do,
    }


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
