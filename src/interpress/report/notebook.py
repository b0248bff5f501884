"""What a notebook shows for a result."""

from __future__ import annotations

import html
from collections.abc import Sequence

from interpress.pipeline.outcome import Outcome


def html_tables(outcome: Outcome) -> str:
    """Return what a notebook shows for a result."""
    rows = [
        (label, f"{a:,}", f"{b:,}", f"{b / a:.1%}")
        for label, a, b in (
            ("FLOPs per example", outcome.before.flops, outcome.after.flops),
            ("parameters", outcome.before.parameters, outcome.after.parameters),
        )
    ]
    head = _table(("", "original", "smaller", "left"), rows)
    spaces = _table(
        ("space", "before", "after", "error", "over SVD"),
        [
            (row.name, str(row.before), str(row.after), f"{row.error:.1%}", _ratio(row.ratio))
            for row in outcome.plan
        ],
    )
    agreement, evidence = outcome.agreement, ""
    if agreement is not None:
        sentences = [f"{outcome.judged_on}: {agreement}", *agreement.notes, *outcome.notes]
        evidence = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
    title = html.escape(f"{outcome.method}, asked for {outcome.budget}")
    folded = f"<details><summary>{len(outcome.plan)} spaces</summary>{spaces}</details>"
    return f"<p><b>{title}</b></p>{head}{evidence}{folded}"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    header = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"
