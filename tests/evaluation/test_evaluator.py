"""Networks judged on the held-out part of the calibration set."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.digits import Trained
from torch import nn

from interpress import agreement
from interpress.data.calibration_set import CalibrationSet
from interpress.evaluation.evaluator import Evaluator
from interpress.evaluation.output_meaning import OutputMeaning

MEANING = OutputMeaning(0, "classification")


@pytest.mark.parametrize("limit", [None, 7])
def test_only_held_out_examples_are_compared(digits: Trained, limit: int | None) -> None:
    data = CalibrationSet(digits.calibration, digits.model)
    other = digits.fresh()
    with torch.no_grad():
        other.out.weight += 0.3 * torch.randn_like(other.out.weight)
    evaluator = Evaluator(digits.model, data, MEANING, limit)
    same, changed = evaluator.agreements(digits.model, other)
    held = torch.cat([example.args[0] for example in data.batches("held")])
    expected = agreement(digits.model, other, held)
    assert (same.examples, same.agreement, same.divergence) == (60, 1.0, 0.0)
    assert changed.agreement == expected.agreement
    assert changed.divergence == pytest.approx(expected.divergence, rel=1e-5)
    with torch.no_grad():
        confidence = digits.model(held).double().softmax(1).amax(1).mean()
    assert changed.confidence == pytest.approx(float(confidence), rel=1e-6)
    assert evaluator.agreement(other) == changed


def test_without_scores_there_is_no_confidence() -> None:
    model = nn.Linear(6, 1)
    data = CalibrationSet(torch.randn(50, 6), model)
    evaluator = Evaluator(model, data, OutputMeaning(0, "regression"))
    result = evaluator.agreement(copy.deepcopy(model))
    assert result.confidence is None
    assert result.output_error == 0.0
