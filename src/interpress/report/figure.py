"""The trade-off as a Plotly figure, for notebooks."""

from __future__ import annotations

from typing import Any

from interpress.errors import InterpressError
from interpress.pipeline.outcome import Outcome
from interpress.report.prediction import predict
from interpress.storage.evidence import evidence
from interpress.storage.page_record import curve_record


def figure_of(outcome: Outcome) -> Any:
    """Return predicted agreement against FLOPs, with the measured result marked."""
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise InterpressError(
            "plot() needs plotly: pip install 'interpress[report]'; report() works without it"
        ) from error
    points = outcome.curve
    known = None
    if not outcome.ranks:  # the curve is that of dropped channels only
        judged = evidence(outcome.agreement, outcome.judged_on, ())
        known = predict(judged, curve_record(outcome)["points"])
    if known is not None and known.is_share:
        values, measured, label = (
            [100 * v for v in known.line],
            100 * known.measured,
            "agreement, %",
        )
    else:
        values, measured, label = [p.loss for p in points], outcome.point.loss, "predicted loss"
    figure = go.Figure()
    figure.add_scatter(
        x=[100 * point.flops for point in points], y=values, name="predicted", mode="lines"
    )
    figure.add_scatter(
        x=[100 * outcome.flops],
        y=[measured],
        name="this result",
        mode="markers",
        marker={"size": 12},
    )
    figure.update_layout(
        title=f"{outcome.method}, asked for {outcome.budget}",
        xaxis_title="FLOPs left, %",
        yaxis_title=label,
        template="plotly_white",
    )
    return figure
