"""The warning for calibration data that look like training data."""

from __future__ import annotations

import warnings

import pytest

from interpress import Agreement, MemorizedWarning
from interpress.evaluation.memorized import warn_if_memorized


def measured(confidence: float | None) -> Agreement:
    return Agreement("classification", 60, 60, 1.0, (0.9, 1.0), 0.0, None, confidence=confidence)


def test_near_certainty_is_reported_with_its_number() -> None:
    with pytest.warns(MemorizedWarning, match=r"confidence .* is 99\.5%.*not trained on"):
        warn_if_memorized(measured(0.995))


def test_held_out_examples_are_named_only_if_there_are_some() -> None:
    with pytest.warns(MemorizedWarning, match="on the held-out calibration examples"):
        warn_if_memorized(measured(0.995))
    with pytest.warns(MemorizedWarning, match="on the calibration examples"):
        warn_if_memorized(measured(0.995), held_out=False)


@pytest.mark.parametrize("agreement", [None, measured(None), measured(0.98), measured(0.5)])
def test_doubt_or_no_measurement_is_not(agreement: Agreement | None) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_if_memorized(agreement)
    assert caught == []
