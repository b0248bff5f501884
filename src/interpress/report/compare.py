"""One page that compares several results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from interpress.report.drawing import Plot
from interpress.report.facts import Facts
from interpress.report.markup import attribute, escape, items, paragraph, section, table
from interpress.report.numbers import count, percent, plural, size
from interpress.report.page import document
from interpress.report.terms import glossary, term
from interpress.report.verdict import verdict_of

_WORDS = {"ship": "ship", "confirm": "one more check", "look": "not yet", "stop": "do not ship"}
_KINDS = {"ship": "pass", "confirm": "open", "look": "fail", "stop": "fail"}


@dataclass(frozen=True)
class Entry:
    """One result of a comparison."""

    name: str
    facts: Facts
    link: str | None = None
    """Where its own report is, relative to the page; None if it has none."""


def comparison_page(entries: Sequence[Entry]) -> str:
    """Return one document with a table of all results, and plots of agreement against cost."""
    title = f"{plural(len(entries), 'result')} compared"
    names = sorted({entry.facts.name for entry in entries})
    models = paragraph(escape(", ".join(names)), "soft")
    body = "".join(
        [
            f"<header><h1>{escape(title)}</h1>{models}</header>",
            _warnings(entries),
            section("results", "Results", _best(entries), _table(entries), _note()),
            _plot(entries, "flops", "FLOPs left, %", "Against FLOPs"),
            _plot(entries, "time", "run time relative to the original, %", "Against run time"),
        ]
    )
    return document(attribute(title), body + glossary(body))


def _best(entries: Sequence[Entry]) -> str:
    """Name the smallest and the fastest result whose checks passed."""
    good = [e for e in entries if verdict_of(e.facts).level in ("ship", "confirm")]
    if not good:
        return paragraph("No result passed all checks; the report of each says which failed.")
    smallest = min(good, key=lambda entry: entry.facts.left("flops"))
    text = (
        f"<b>{escape(smallest.name)}</b> is the smallest whose checks passed, with "
        f"{percent(smallest.facts.left('flops'))} of the FLOPs"
    )
    timed = [(e.facts.time_ratio, e.name) for e in good if e.facts.time_ratio is not None]
    if len(timed) == len(good) > 0:
        ratio, name = min(timed)
        if name == smallest.name:
            text += "; it is also the fastest of those whose checks passed"
        else:
            text += f"; {escape(name)} is the fastest of those whose checks passed"
        text += f", with {percent(ratio, 0)} of the run time"
    return paragraph(f"{text}.")


def _note() -> str:
    return paragraph(
        f"Agreement is given with its {term('interval')}. Where intervals overlap much, these data "
        "do not tell which network is better. Run times compare with each other only if they were "
        "measured on the same machine.",
        "soft",
    )


def _warnings(entries: Sequence[Entry]) -> str:
    """Say what keeps these results from being compared."""
    originals = {(e.facts.extra.get("digests") or {}).get("original") for e in entries}
    judged = {
        (e.facts.judged["on"], e.facts.judged["examples"], _data_of(e))
        for e in entries
        if e.facts.judged is not None
    }
    found = []
    if len(originals) > 1:
        found.append("The results were made from different original weights.")
    if len(judged) > 1:
        found.append(
            "The results were judged on different data, so their agreements do not compare exactly."
        )
    if not found:
        return ""
    return f'<section id="verdict" class="look"><h2>Compare with care</h2>{items(found)}</section>'


def _data_of(entry: Entry) -> object:
    """Return what tells calibration data apart, if the held-out ones were judged on."""
    return None if entry.facts.is_independent else entry.facts.data.get("fingerprint")


def _table(entries: Sequence[Entry]) -> str:
    shows_time = any(entry.facts.time_ratio is not None for entry in entries)
    shows_tokens = any(entry.facts.perplexity is not None for entry in entries)
    head = ["result", "asked for", term("flops"), term("parameters"), "weights"]
    head += [term("run-time")] * shows_time + [_quality(entries)]
    head += [term("perplexity")] * shows_tokens + ["verdict"]
    rows = []
    for entry in entries:
        facts = entry.facts
        name = escape(entry.name)
        stored = facts.extra.get("bytes")
        row = [
            name if entry.link is None else f'<a href="{attribute(entry.link)}">{name}</a>',
            f"<code>{escape(facts.asked)}</code><br> {escape(facts.method)}{_distilled(facts)}",
            percent(facts.left("flops")),
            percent(facts.left("parameters")),
            "" if stored is None else size(stored[1]),
        ]
        row += [percent(facts.time_ratio, 0)] * shows_time + [_judged(facts)]
        if shows_tokens:
            tokens = facts.perplexity
            row.append("" if tokens is None else f"{tokens[1]:.4g} (was {tokens[0]:.4g})")
        level = verdict_of(facts).level
        row.append(f'<span class="mark {_KINDS[level]}">{_WORDS[level]}</span>')
        rows.append(row)
    return table(head, rows, kind="results")


def _distilled(facts: Facts) -> str:
    done = facts.record.get("distilled")
    return f", distilled ({plural(done['steps'], 'step')})" if done and done["kept"] else ""


def _quality(entries: Sequence[Entry]) -> str:
    judged = [entry.facts.judged for entry in entries if entry.facts.judged is not None]
    if judged and all(one["agreement"] is None for one in judged):
        return term("output-error")
    return term("agreement")


def _judged(facts: Facts) -> str:
    judged = facts.judged
    if judged is None:
        return "not judged"
    if judged["agreement"] is None:
        return f"{percent(judged['output_error'])} error"
    low, high = judged["interval"]
    detail = f"{100 * low:.1f} to {percent(high)}, {count(judged['examples'])} examples"
    return f'{percent(judged["agreement"], 2)}<br> <span class="soft">{detail}</span>'


def _plot(entries: Sequence[Entry], what: str, title: str, heading: str) -> str:
    """Return agreement (or output error) against one cost; empty with fewer than two points."""
    points = []
    for entry in entries:
        facts, judged = entry.facts, entry.facts.judged
        cost = facts.left("flops") if what == "flops" else facts.time_ratio
        if judged is not None and cost is not None:
            share, error = judged["agreement"], judged["output_error"]
            value = error if share is None else share
            if value is not None:
                points.append((cost, value, judged["interval"], entry.name, share is None))
    errors = {is_error for *_, is_error in points}
    if len(points) < 2 or len(errors) > 1:
        return ""
    is_error = errors.pop()
    ends = [v for _, v, interval, _, _ in points for v in (v, *(interval or ()))]
    low, high = (0.0, 1.15 * max(ends)) if is_error else (min(ends), 1.0)
    if not is_error:
        low, high = max(0.0, low - 0.1 * (1 - low)), 1 + 0.04 * (1 - low)
    quality = "output error, % of the standard deviation" if is_error else "agreement, %"
    label = f"{quality} against {title}: " + "; ".join(
        f"{name} {percent(value, 2)} at {percent(cost)}" for cost, value, _, name, _ in points
    )
    plot = Plot((0.0, max(1.0, *(1.05 * cost for cost, *_ in points))), (low, high), label)
    plot.axes(title, quality)
    for cost, value, interval, name, _ in points:
        plot.dot(cost, value, interval, f"{name}: {percent(value, 2)}")
        plot.name(cost, value, name)
    return section(what, heading, plot.svg())
