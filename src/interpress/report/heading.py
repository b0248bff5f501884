"""The title and the heading of the page of a result."""

from __future__ import annotations

from interpress.report.facts import Facts
from interpress.report.markup import attribute, escape
from interpress.report.numbers import percent


def describe(facts: Facts) -> str:
    """Return the title of a page."""
    return attribute(_title(facts))


def _title(facts: Facts) -> str:
    done = facts.record.get("distilled")
    end = ", distilled" if done and done["kept"] else ""
    return f"{facts.name} at {percent(facts.left('flops'))} of its FLOPs{end}"


def headline(facts: Facts) -> str:
    """Return the heading of a page."""
    made = (facts.extra.get("made") or {}).get("date", "")
    version = facts.record["versions"]["interpress"]
    ratio = facts.time_ratio
    low, high = facts.time_quartiles or (0.0, 0.0)
    faster = "" if ratio is None else f"run time here {percent(ratio, 0)} of the original's"
    if low <= 1 <= high:
        faster = "run time here about that of the original"
    parts = [
        f"asked for {facts.asked}", faster, f"method {facts.method}", f"interpress {version}", made,
    ]  # fmt: skip
    line = " · ".join(escape(part) for part in parts if part)
    return f'<header><h1>{escape(_title(facts))}</h1><p class="soft">{line}</p></header>'
