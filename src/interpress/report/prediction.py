"""Predicted agreement along the trade-off, scaled to pass through what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Prediction:
    """A predicted quantity at every point of the curve, with its uncertainty."""

    label: str
    measured: float
    line: list[float]
    low: list[float] | None = None
    """The line through the lower end of the interval of what was measured."""
    high: list[float] | None = None
    interval: tuple[float, float] | None = None
    assumes_half: bool = False
    """Whether no decision changed, so that the line assumes half of one."""

    @property
    def is_share(self) -> bool:
        """Whether it is a fraction of decisions, where 1 is best; else an error, where 0 is."""
        return self.interval is not None


def predict(
    judged: Mapping[str, Any] | None, points: Sequence[Mapping[str, Any]]
) -> Prediction | None:
    """Return predicted agreement, or output error; None if nothing was measured.

    An error flips the decisions whose margin it exceeds, so the fraction of flipped decisions is
    taken to be proportional to the noise-to-signal ratio. So is the output error of a regression.
    """
    if judged is None:
        return None
    if any(point["noise"] is None for point in points):  # no noise could be measured
        return None
    noise = [float(point["noise"]) for point in points]
    if judged["agreement"] is None:
        error = judged["output_error"]
        if error is None:
            return None
        return Prediction("output error", error, [error * share for share in noise])
    share, decisions = float(judged["agreement"]), int(judged["decisions"])
    if decisions == 0:
        return None
    low, high = (float(end) for end in judged["interval"])

    def through(agreement: float) -> list[float]:
        return [max(0.0, 1 - (1 - agreement) * n) for n in noise]

    fewest = 1 - 0.5 / decisions
    line = through(min(share, fewest))
    return Prediction(
        "agreement", share, line, through(low), through(high), (low, high), share > fewest
    )
