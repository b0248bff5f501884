"""The sections of a page below the answers: each is a function from facts to HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interpress.report.drawing import skyline
from interpress.report.facts import Facts
from interpress.report.markup import (
    definitions,
    escape,
    items,
    paragraph,
    section,
    table,
)
from interpress.report.numbers import count, percent, plural, seconds, size
from interpress.report.terms import term
from interpress.report.verdict import Verdict

_MOST_BARS = 48  # spaces that get a row each in the picture; more get a column each
_MOST_CLASSES = 20  # rows of the table of classes
_MOST_NAMED = 12  # spaces that are named for one reason


def costs(facts: Facts) -> str:
    """Return what both networks cost: counted, stored and measured."""
    rows = []

    def row(label: str, before: str, after: str, left: float | None) -> None:
        rows.append((label, before, after, percent(left)))

    for key, label in (
        ("flops", f"{term('flops')} per example"),
        ("parameters", term("parameters")),
    ):
        before, after = facts.record[key]
        row(label, count(before), count(after), facts.left(key))
    if (stored := facts.extra.get("bytes")) is not None:
        row(
            "size of the weight file",
            size(stored[0]),
            size(stored[1]),
            stored[1] / max(stored[0], 1),
        )
    notes = []
    if facts.memory is not None:
        before, after = facts.memory
        row(term("memory"), size(before), size(after), after / max(before, 1))
    label, (time_before, time_after), said = _run_time(facts)
    if facts.time_ratio is not None:
        row(label, time_before, time_after, facts.time_ratio)
    notes.append(said)
    notes.append("The weight file is the tensors; its header adds a few kB.")
    head = ("", "original", "smaller", "left")
    return section(
        "costs", "Before and after", table(head, rows), paragraph(" ".join(notes), "soft")
    )


def _run_time(facts: Facts) -> tuple[str, tuple[str, str], str]:
    """Return the label and the cells of the run time, and how it and memory were measured."""
    ratio, run = facts.time_ratio, facts.run
    if ratio is None:
        return "", ("", ""), "Run time and memory were not measured."
    label, cells = term("run-time"), (percent(1.0, 0), percent(ratio, 0))
    spread = ""
    if facts.time_quartiles is not None:
        low, high = facts.time_quartiles
        spread = f" Half of the measured ratios lie between {percent(low)} and {percent(high)}."
    memory = "Memory is the weights and the peak of the tensors that a run creates"
    if facts.onnx is not None:
        found = facts.onnx
        said = (
            f"The run time is that of {escape(facts.onnx_name)} and of the smaller file in ONNX "
            f"Runtime, on {plural(found['examples'], 'example')} with "
            f"{plural(found['threads'], 'thread')}: the median of ratios.{spread}"
        )
        said += "" if facts.memory is None else f" {memory} in PyTorch."
        return f"{label} in ONNX Runtime", cells, said
    if run is None:
        return label, cells, ""
    batch = "one batch of " + plural(run["examples"], "example")
    threads = f" with {plural(run['threads'], 'thread')}" if run["device"] == "cpu" else ""
    when = ""
    if facts.distilled_from is not None:
        when = " before the distillation, which changes no size,"
    said = (
        f"Run time and memory were measured{when} on {batch} on {escape(run['device'])}{threads}: "
        f"both networks ran in turn, {plural(run['rounds'], 'time')}; the time of the "
        "original is the median, and that of the smaller network follows from the median of the "
        f"ratios.{spread} {memory}."
    )
    before, after = run["seconds"]
    return label, (seconds(before), seconds(after)), said


def checks(verdict: Verdict) -> str:
    """Return the rules behind the verdict."""
    rows = []
    for check in verdict.checks:
        kind, word = check.mark
        rows.append(
            (escape(check.rule), escape(check.found), f'<span class="mark {kind}">{word}</span>')
        )
    note = (
        "The verdict follows from these rules alone: “ship” if none failed, “ship if one more "
        "measurement holds” if the one about the data is still open, “do not ship it as it is” if "
        "any other did not pass. If a run time is marked “undecided”, the measurements vary too "
        "much to tell; that changes no verdict. The limits (5 %, or 1.05 times the perplexity) are "
        "defaults; a limit that your application has comes first."
    )
    return section(
        "checks", "The rules behind the verdict", table(("rule", "found", ""), rows, kind="text"),
        paragraph(note, "soft"),
    )  # fmt: skip


def widths(facts: Facts) -> str:
    """Return the widths of all spaces before and after, as a picture."""
    rows = facts.extra.get("widths")
    if not rows:
        return ""
    note = (
        f"One bar per {term('space')}, in the order of the network. Its length is the "
        f"{term('width')} before, the filled part is the width after. "
        '<span class="key-of"><span class="key kept"></span> kept</span> '
        '<span class="key-of"><span class="key before"></span> removed</span> '
        f'<span class="key-of"><span class="key frozen"></span> {term("frozen")}</span>'
    )
    if facts.heads is not None:
        note += (
            " <code>:heads</code> counts attention heads, or groups of them that share a key and a "
            "value; then <code>:heads-per-group</code> counts all query heads of the layer."
        )
    if len(rows) > _MOST_BARS:
        label = f"Widths of {len(rows)} spaces before and after; the numbers are in the last table"
        columns = [(r["name"], r["before"], r["after"], r["frozen"]) for r in rows]
        return section("widths", "Widths", paragraph(note), skyline(columns, label))
    widest = max(row["before"] for row in rows)
    return section("widths", "Widths", paragraph(note), _bars(rows, widest))


def _bars(rows: list[Mapping[str, Any]], widest: int) -> str:
    bars = []
    for row in rows:
        length = max(2.0, 100 * row["before"] / widest)
        kept = 100 * row["after"] / row["before"]
        kind = "frozen" if row["frozen"] else "kept"
        text = "frozen" if row["frozen"] else f"of {count(row['before'])}"
        if row["frozen"] and row["after"] < row["before"]:
            text = f"of {count(row['before'])}, with its heads"
        filled = f'<span class="{kind}" style="width:{kept:.1f}%"></span>'
        bar = f'<span class="before" style="width:{length:.1f}%">{filled}</span>'
        numbers = f'{count(row["after"])} <span class="soft">{text}</span>'
        bars.append(
            f'<li><span class="name">{escape(row["name"])}</span>'
            f'<span class="bar" aria-hidden="true">{bar}</span>'
            f'<span class="width">{numbers}</span></li>'
        )
    return f'<ul class="bars">{"".join(bars)}</ul>'


def judgement(facts: Facts) -> str:
    """Return the measured agreement in detail."""
    judged = facts.judged
    if judged is None:
        return ""
    rows = [("judged on", f"{plural(judged['examples'], 'example')}: {escape(judged['on'])}")]
    if judged["agreement"] is not None:
        low, high = judged["interval"]
        of_all = plural(judged["decisions"], "decision")
        rows += [
            (term("agreement"), f"{percent(judged['agreement'], 2)} of {of_all}"),
            (term("interval"), f"{percent(low, 2)} to {percent(high, 2)}"),
        ]
    if judged["divergence"] is not None:
        rows.append((term("divergence"), f"{judged['divergence']:.4f}"))
    if judged["output_error"] is not None:
        rows.append((term("output-error"), f"{judged['output_error']:.3g}"))
    if judged["accuracy"] is not None:
        before, after = judged["accuracy"]
        rows.append(("accuracy", f"{percent(before, 2)} before, {percent(after, 2)} after"))
    held_out = facts.record["agreement"]
    if facts.is_independent and held_out is not None:
        rows.append((term("held-out", "on held-out examples"), escape(held_out.get("text", ""))))
    notes = [escape(note) for note in judged.get("scores", [])]
    return section(
        "agreement", "The comparison in detail", definitions(rows), items(notes),
        _classes(judged),
    )  # fmt: skip


def _classes(judged: Mapping[str, Any]) -> str:
    rows = judged.get("classes") or []
    if not rows:
        return ""
    labelled = any(row["accuracy_before"] is not None for row in rows)
    worst = sorted(rows, key=lambda row: (row["agreement"], row["label"]))
    shown = worst[:_MOST_CLASSES] if len(rows) > _MOST_CLASSES else rows
    several = judged["decisions"] != judged["examples"]
    head = ["class", "decisions" if several else "examples", "changed", "agreement"]
    cells = []
    for row in shown:
        changed = round(row["count"] * (1 - row["agreement"]))
        line = [str(row["label"]), count(row["count"]), count(changed), percent(row["agreement"])]
        if labelled:
            line += [percent(row["accuracy_before"]), percent(row["accuracy_after"])]
        cells.append(line)
    which = "A class is the label of an example." if labelled else (
        "A class is what the original decides."
    )  # fmt: skip
    if len(rows) > _MOST_CLASSES:
        which += f" The {_MOST_CLASSES} of {len(rows)} classes with the lowest agreement:"
    columns = [*head, *(["accuracy before", "after"] if labelled else [])]
    return paragraph(which, "soft") + table(columns, cells, kind="classes")


def frozen(facts: Facts) -> str:
    """Return what was left alone, grouped by reason."""
    rows = []
    for group in facts.frozen:
        names = [escape(name) for name in group["spaces"]]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        rows.append(
            (
                _reason(group),
                percent(group["flops"]),
                ", ".join(names[:_MOST_NAMED]) + more,
                escape(group["remedy"]),
            )
        )
    if not rows and not facts.whole:
        return ""
    note = (
        f"{term('frozen', 'Frozen')} spaces keep all their channels, except those of attention "
        "heads that were dropped as a whole. The share is that of all FLOPs which no space can "
        "reduce; it is 0 where every layer of the space also depends on one that shrinks."
    )
    found = (
        table(
            ("reason", "FLOPs", "spaces", "what you can do"),
            rows,
            kind="text",
        )
        if rows
        else ""
    )
    whole = ""
    if facts.spared:
        listed = ", ".join(map(escape, facts.spared))
        whole = paragraph(f"Could shrink, and stayed whole for this budget: {listed}.")
    if facts.untrusted:
        listed = "; ".join(f"{escape(n)} ({escape(why)})" for n, why in facts.untrusted.items())
        whole += paragraph(f"Left whole, because the examples say too little about them: {listed}.")
    return section("frozen", "What was left alone, and why", paragraph(note, "soft"), found, whole)


def _reason(group: Mapping[str, Any]) -> str:
    """Return a family of reasons, and below it the words of its first space."""
    family, reason = escape(group["family"]), escape(group["reason"])
    return family if reason == family else f'{family}<br><span class="soft">{reason}</span>'


def thin(facts: Facts) -> str:
    """Return the layers that became two."""
    rows = [
        (
            escape(pair["name"]), count(pair["inputs"]), count(pair["outputs"]),
            count(pair["rank"]), percent(pair["share"], 0),
        )
        for pair in facts.extra.get("thin") or []
    ]  # fmt: skip
    if not rows:
        return ""
    note = "FLOPs of the two layers are relative to one layer of this size."
    head = ("layer", "inputs", "outputs", "rank", "FLOPs")
    title = "Layers that became two (low rank)"
    return section("thin", title, paragraph(note, "soft"), table(head, rows))


def spaces(facts: Facts, *, has_slider: bool) -> str:
    """Return every space that can shrink, with its error; a slider shows other budgets."""
    rows = []
    for row in facts.record["plan"]:
        changed = row["after"] < row["before"]
        ratio = None
        if row["bound"] is not None:
            ratio = row["error"] / row["bound"] if row["bound"] > 0 else 1.0
        rows.append(
            (
                escape(row["name"]), count(row["before"]), count(row["after"]),
                percent(row["error"]) if changed else "",
                f"{ratio:.2f}" if changed and ratio is not None else "",
            )
        )  # fmt: skip
    head = ("space", "before", "after", term("error", "error"), term("bound", "over SVD"))
    found = table(head, rows, kind="spaces")
    slider = _SLIDER if has_slider else ""
    return section("spaces", "All spaces that can shrink", slider, found)


_SLIDER = (
    '<div class="slider" hidden><label for="budget">Another budget (predicted): '
    '<output id="budget-value" for="budget"></output> of the FLOPs</label>'
    '<input type="range" id="budget" min="0" step="1" aria-describedby="predicted">'
    '<p id="predicted" aria-live="polite"></p></div>'
)
