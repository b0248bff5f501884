"""Networks judged on the held-out part of the calibration set."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.digits import Trained
from torch import Tensor, nn

from interpress import agreement
from interpress.data.calibration_set import CalibrationSet
from interpress.evaluation.evaluator import Evaluator
from interpress.evaluation.output_meaning import OutputMeaning, find_meaning
from interpress.graph.example import Example

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


class Masked(CalibrationSet):
    """Tokens of which the last two never count."""

    def convert(self, raw: Any, number: int = 0) -> Example:
        example = super().convert(raw, number)
        mask = torch.ones(example.args[0].shape, dtype=torch.bool)
        mask[:, -2:] = False
        return replace(example, masks=(mask,))


class Tokens(nn.Module):
    """Scores per token, and another output; some positions change with `late`."""

    def __init__(self, late: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(9, 4)
        self.late = nn.Parameter(torch.tensor(late))

    def forward(self, tokens: Tensor) -> dict[str, Tensor]:
        scores = self.table(tokens)
        change = torch.zeros_like(scores)
        change[:, -2:] = self.late * torch.randn(4)
        return {"logits": scores + change, "hidden": scores[..., :2] + change[..., :2]}


def test_positions_that_the_mask_excludes_do_not_count() -> None:
    tokens = torch.randint(9, (60, 6), generator=torch.Generator().manual_seed(1))
    models = Tokens(), Tokens(50.0)
    for kind, agreement_expected in ((Masked, 1.0), (CalibrationSet, None)):
        data = kind(tokens, models[0])
        meaning = find_meaning(models[0], data.first())
        result = Evaluator(models[0], data, meaning).agreement(models[1])
        if agreement_expected is None:
            assert result.agreement is not None
            assert result.agreement < 1
            assert result.others[0].error != 0
        else:
            assert (result.agreement, result.decisions, result.flips) == (1.0, 12 * 4, ())
            assert result.others[0].error == 0


RUNS: list[int] = []  # not an attribute of the model, which an evaluation would restore


class Counting(nn.Linear):
    """A layer that counts how often it runs."""

    def forward(self, input: Tensor) -> Tensor:
        RUNS.append(len(input))
        return super().forward(input)


@pytest.mark.parametrize("is_small", [True, False])
def test_the_original_runs_once_if_its_outputs_are_small(
    is_small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_small:
        monkeypatch.setattr("interpress.evaluation.evaluator._KEPT_BYTES", 2 * 4 * 3)
    model = Counting(6, 3)
    data = CalibrationSet(list(torch.randn(100, 6).split(20)), model)
    other = nn.Linear(6, 3)
    evaluator = Evaluator(model, data, MEANING, examples_per_batch=2)
    RUNS.clear()
    first = evaluator.agreement(other)
    batches = len(RUNS)
    assert batches >= 10
    assert evaluator.agreement(other) == first
    assert len(RUNS) == batches + (0 if is_small else batches - 1)  # one batch was kept
