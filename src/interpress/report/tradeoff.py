"""The trade-off of one result: a plot, and what other budgets would give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interpress.report.drawing import Plot
from interpress.report.facts import Facts
from interpress.report.markup import paragraph, section, table
from interpress.report.numbers import percent
from interpress.report.prediction import Prediction, predict
from interpress.report.terms import term

_SHOWN = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)  # fractions of the FLOPs in the table
_NEAR = 0.04  # how far a point of the curve may be from one of them
_LEAST = 0.15  # FLOPs below which the curve falls so steeply that it does not set the scale
_ROOM = 0.15  # of the plot, below the lowest point


def prediction_of(facts: Facts) -> Prediction | None:
    """Return the prediction along the curve; None if there is no curve or no measurement.

    With layers that became two, the curve of dropped channels does not pass through the result.
    """
    curve = facts.extra.get("curve")
    return None if not curve else predict(facts.judged, curve["points"])


def tradeoff(facts: Facts) -> str:
    """Return the plot, its explanation, and the table of other budgets."""
    found = prediction_of(facts)
    if found is None:
        return ""
    points = facts.extra["curve"]["points"]
    drawn = not facts.extra.get("thin")
    return section(
        "tradeoff", "The trade-off",
        paragraph(_explained(facts, found, drawn)),
        _plot(facts, found, points if drawn else []),
        _table(found, points) if drawn else "",
    )  # fmt: skip


def _explained(facts: Facts, found: Prediction, drawn: bool) -> str:
    bar = f", with its {term('interval')}" if found.is_share else ""
    text = f"<b>The dot</b> is this result at its measured value{bar}."
    if not drawn:
        return text + " There is no predicted curve, because some layers became two thin ones."
    text += " <b>The line</b> is predicted from the calibration statistics"
    if found.assumes_half:
        text += ". No decision changed, so the line is drawn as if half a decision had"
    else:
        text += " and scaled to pass through the dot"
    text += "; no other network was built for it."
    if facts.perplexity is not None:
        text += " It does not predict the perplexity."
    if found.is_share:
        text += (
            " <b>The band</b> is the same prediction through both ends of the interval. It does "
            "not include the error of the prediction itself, which grows away from the dot. Both "
            "are cut off at the lower edge."
        )
    return text


def _plot(facts: Facts, found: Prediction, points: Sequence[Mapping[str, Any]]) -> str:
    here, flops = found.measured, [float(point["flops"]) for point in points]
    floor, ceiling = _range(found, flops)
    shown = percent(here, 2)
    left = percent(facts.left("flops"))
    label = f"Predicted {found.label} against FLOPs left; measured: {shown} at {left} of the FLOPs"
    plot = Plot((0.0, 1.0), (floor, ceiling), label)
    plot.axes(
        "FLOPs left, %",
        f"{found.label} with the original, %"
        if found.is_share
        else f"{found.label}, % of the standard deviation",
    )
    inside = [
        n for n, value in enumerate(found.line[: len(flops)])
        if value >= floor and (value > 0 or not found.is_share)  # a share of 0 is no prediction
    ]  # fmt: skip
    if points and found.low is not None and found.high is not None:
        lower, upper = (
            [(flops[n], max(end[n], floor)) for n in inside] for end in (found.low, found.high)
        )
        plot.band(lower, upper)
    if points:  # the line ends where it leaves the plot
        plot.line([(flops[n], found.line[n]) for n in inside])
    plot.dot(facts.left("flops"), here, found.interval, f"measured: {shown}")
    return plot.svg()


def _range(found: Prediction, flops: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the y axis: what lies at very few FLOPs does not set the scale."""
    if not found.is_share:
        values = [v for v, f in zip(found.line, flops, strict=False) if f >= _LEAST]
        return 0.0, 1.15 * max([*values, found.measured, 1e-6])
    low = found.low or found.line
    values = [v for v, f in zip(low, flops, strict=False) if f >= _LEAST]
    lowest = min([*values, found.measured, *(found.interval or ())])
    return max(0.0, lowest - _ROOM * (1 - lowest)), 1.0 + 0.04 * (1 - lowest)


def _table(found: Prediction, points: Sequence[Mapping[str, Any]]) -> str:
    """Return predictions at round fractions of the FLOPs."""
    rows = []
    for wanted in _SHOWN:
        index = min(range(len(points)), key=lambda i: abs(points[i]["flops"] - wanted))
        point = points[index]
        is_far = found.is_share and not (found.low or found.line)[index]
        if abs(point["flops"] - wanted) > _NEAR or is_far:
            continue  # no such point, or one too far from the measured one to predict
        row = [percent(point["flops"], 0), percent(point["params"], 0), percent(found.line[index])]
        if found.low is not None and found.high is not None:
            ends = f"{100 * found.low[index]:.1f} to {percent(found.high[index])}"
            row.append(f'<span class="range">{ends}</span>')
        if row not in rows:
            rows.append(row)
    if not rows:
        return ""
    head = ("FLOPs left", "parameters left", found.label, "range")
    caption = paragraph("What other budgets would give, as predicted:", "soft")
    return caption + table(head[: len(rows[0])], rows)
