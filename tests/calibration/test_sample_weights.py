"""Sample weights: examples of rarely predicted classes count more, up to eight times."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from interpress.calibration.sample_weights import (
    TopClasses,
    concatenate,
    draw_examples,
    top_classes_of,
)
from interpress.evaluation.output_meaning import OutputMeaning

CLASSES = OutputMeaning(0, "classification")


def nearly_certain(classes: list[int], of: int = 4) -> Tensor:
    """Return probabilities of examples whose class is all but certain."""
    return nn.functional.one_hot(torch.tensor(classes), of) * 0.96 + 0.01


def test_a_rare_class_counts_more_and_sampling_noise_does_not() -> None:
    certain = nearly_certain([0] * 40 + [1] * 40 + [2] * 8 + [3] * 30)
    weights = TopClasses.of(certain).weights()
    assert set(weights[:80].tolist()) == {1.0}  # the median
    assert set(weights[88:].tolist()) == {1.0}  # 30 instead of 40 is sampling noise
    torch.testing.assert_close(weights[80:88], torch.full((8,), 4.5), atol=0.6, rtol=0)


def test_no_weight_exceeds_eight_and_improbable_classes_do_not_count() -> None:
    certain = nearly_certain([0] * 500 + [1] * 499 + [2])
    weights = TopClasses.of(certain).weights()
    assert float(weights[-1]) == 8.0
    certain = torch.full((100, 3), 1e-4)
    certain[:50, 0] = certain[50:, 1] = 0.9998
    certain[7, 2] = 5e-3  # the third class is never predicted
    assert set(TopClasses.of(certain).weights().tolist()) == {1.0}


def test_an_example_in_doubt_gets_a_share_of_the_rare_class() -> None:
    probabilities = nearly_certain([0] * 45 + [1] * 45 + [2] * 10, of=3)
    probabilities[0] = torch.tensor([0.5, 0.0, 0.5])
    weights = TopClasses.of(probabilities).weights()
    assert 1.5 < float(weights[0]) < float(weights[-1])


def test_only_one_decision_per_example_can_be_weighted() -> None:
    scores = torch.randn(6, 5)
    known = top_classes_of(CLASSES, [scores], 6)
    assert known is not None
    assert torch.equal(known.classes[:, 0].long(), scores.argmax(1))
    torch.testing.assert_close(known.probabilities.sum(1), torch.ones(6))
    assert top_classes_of(None, [scores], 6) is None
    assert top_classes_of(CLASSES, [scores], 3) is None  # not one row per example
    assert top_classes_of(CLASSES, [torch.randn(6, 7, 5)], 6) is None  # tokens
    assert top_classes_of(CLASSES, [scores.sum()], 6) is None  # a single number
    assert top_classes_of(CLASSES, [scores * torch.inf], 6) is None
    assert top_classes_of(OutputMeaning(0, "segmentation"), [torch.randn(6, 5, 4, 4)], 6) is None
    assert top_classes_of(OutputMeaning(0, "regression"), [scores], 6) is None
    binary = top_classes_of(OutputMeaning(1, "binary"), [scores, scores[:, :1]], 6)
    assert binary is not None
    assert torch.equal(binary.classes[:, 0] == 1, scores[:, 0] > 0)


def test_batches_are_concatenated_if_all_are_known() -> None:
    known = top_classes_of(CLASSES, [torch.randn(6, 5)], 6)
    assert concatenate([known, None]) is None
    assert concatenate([]) is None
    both = concatenate([known, known])
    assert both is not None
    assert both.classes.shape == both.probabilities.shape == (12, 5)


def test_at_most_eight_classes_are_remembered() -> None:
    probabilities = torch.randn(6, 100).softmax(1)
    top = TopClasses.of(probabilities)
    assert top.classes.shape == (6, 8)
    assert torch.equal(top.probabilities, probabilities.sort(1, descending=True).values[:, :8])


WEIGHTS = torch.ones(100)
WEIGHTS[::10] = 5.0


@pytest.mark.parametrize("count", [1, 30, 70, 99])
def test_drawing_is_without_replacement_and_repeatable(count: int) -> None:
    chosen, weights = draw_examples(WEIGHTS, count, seed=3)
    assert len(chosen) == count
    assert torch.equal(chosen, chosen.unique())  # ascending, none twice
    again, same_weights = draw_examples(WEIGHTS, count, seed=3)
    assert torch.equal(chosen, again)
    assert (weights is None) == (same_weights is None)


@pytest.mark.parametrize("count", [30, 70, 99])
def test_heavy_examples_are_certain_and_the_expected_total_is_kept(count: int) -> None:
    totals = []
    for seed in range(40):
        chosen, weights = draw_examples(WEIGHTS, count, seed)
        assert set(range(0, 100, 10)) <= set(chosen.tolist())
        totals.append(len(chosen) if weights is None else float(weights.sum()))
    assert sum(totals) / 40 == pytest.approx(140, rel=0.02)


@pytest.mark.parametrize("count", [100, 300])
def test_where_all_examples_fit_they_keep_their_weights(count: int) -> None:
    chosen, weights = draw_examples(WEIGHTS, count, seed=3)
    assert torch.equal(chosen, torch.arange(100))
    assert weights is not None
    assert torch.equal(weights, WEIGHTS)
    assert draw_examples(torch.ones(100), count, seed=3)[1] is None
