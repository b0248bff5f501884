"""The trade-off as a Plotly figure, for notebooks."""

from __future__ import annotations

from typing import Any

from interpress.errors import InterpressError
from interpress.pipeline.outcome import Outcome
from interpress.report.content import predicted_agreement


def figure_of(outcome: Outcome) -> Any:
    """Return predicted agreement against FLOPs, with the measured result marked."""
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise InterpressError(
            "plot() needs plotly: pip install 'interpress[report]'; report() works without it"
        ) from error
    points = outcome.curve
    shares = predicted_agreement(outcome, points)
    known = shares[0] is not None
    values = [100 * s for s in shares if s is not None] if known else [p.loss for p in points]
    figure = go.Figure()
    figure.add_scatter(
        x=[100 * point.flops for point in points], y=values, name="predicted", mode="lines"
    )
    measured = 100 * float(outcome.agreement or 0) if known else outcome.point.loss
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
        yaxis_title="agreement, %" if known else "predicted loss",
        template="plotly_white",
    )
    return figure
