"""Warn when the calibration data look like the data that the network was trained on."""

from __future__ import annotations

from interpress.errors import warn_user
from interpress.evaluation.tally import Agreement

_CERTAIN = 0.01
"""Mean doubt (one minus confidence) on held-out examples below which they look memorised."""


class MemorizedWarning(UserWarning):
    """The calibration data look like data that the network was trained on."""


def looks_memorized(confidence: float | None) -> bool:
    """Return whether a mean confidence is typical of training data."""
    return confidence is not None and 1 - confidence < _CERTAIN


def warn_if_memorized(agreement: Agreement | None, held_out: bool = True) -> None:
    """Warn if the original network is nearly certain of every decision that was judged.

    `held_out` says whether these are held-out examples, or all of too few examples.
    """
    confidence = None if agreement is None else agreement.confidence
    if looks_memorized(confidence):
        warn_user(
            f"the model's mean confidence on the {'held-out ' * held_out}calibration examples is "
            f"{confidence:.1%}, which is typical of training data. Agreement measured on them is "
            "too optimistic; calibrate on examples that the model was not trained on",
            MemorizedWarning,
        )
