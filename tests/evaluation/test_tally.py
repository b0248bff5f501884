"""Counting decisions of two networks over batches of outputs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from interpress import DataError
from interpress.evaluation import tally as module
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.evaluation.outputs import OutputLayout
from interpress.evaluation.tally import Agreement, Tally, wilson

CLASSES = OutputMeaning(0, "classification")
SCORES = torch.tensor([[2.0, 0, 0], [0, 2, 0], [0, 0, 2], [1, 0.9, 0], [0.9, 1, 0]])
SHIFT = torch.tensor([0.0, 0.5, 0.0])  # changes the decision of the fourth example only
LABELS = torch.tensor([0, 1, 2, 0, 0])


def compared(
    first: Tensor, second: Tensor, labels: Tensor | None = None, meaning: OutputMeaning = CLASSES
) -> Agreement:
    tally = Tally(meaning)
    tally.add(first, second, labels)
    return tally.result()


@pytest.mark.parametrize(("successes", "trials", "low", "high"), [
    (0, 10, 0.0, 0.27753), (10, 10, 0.72247, 1.0), (81, 100, 0.72222, 0.87495),
])  # fmt: skip
def test_wilsons_interval(successes: int, trials: int, low: float, high: float) -> None:
    """Against values computed with statsmodels' proportion_confint(method="wilson")."""
    assert wilson(successes, trials) == (
        pytest.approx(low, abs=2e-4),
        pytest.approx(high, abs=2e-4),
    )


def test_equal_outputs_agree_in_everything() -> None:
    result = compared(SCORES, SCORES, LABELS)
    assert result.agreement == 1.0
    assert float(result) == 1.0
    assert result.divergence == result.distance == 0.0
    assert result.flips == ()
    assert result.accuracy == (0.8, 0.8)
    assert result.interval == wilson(5, 5)


@pytest.mark.parametrize("sizes", [[5], [2, 3], [1, 1, 1, 1, 1]])
def test_batches_add_up(sizes: list[int]) -> None:
    tally = Tally(CLASSES)
    for scores, labels in zip(SCORES.split(sizes), LABELS.split(sizes), strict=True):
        tally.add(scores, scores + SHIFT, labels)
    result = tally.result()
    assert result.examples == result.decisions == 5
    assert result.agreement == 0.8
    (flip,) = result.flips
    assert (flip.index, flip.before, flip.after, flip.label) == (3, 0, 1, 0)
    assert result.accuracy == (0.8, 0.6)
    assert result.turned == (1, 0, 0)
    zero = next(row for row in result.per_class if row.label == 0)
    assert (zero.count, zero.agreement) == (3, pytest.approx(2 / 3))
    assert zero.accuracy_before == pytest.approx(2 / 3)
    assert zero.accuracy_after == pytest.approx(1 / 3)
    per_example = nn.functional.kl_div(
        (SCORES + SHIFT).double().log_softmax(1), SCORES.double().log_softmax(1),
        log_target=True, reduction="none",
    ).sum(1)  # fmt: skip
    assert result.divergence == pytest.approx(float(per_example.mean()), rel=1e-5)
    assert result.distance == pytest.approx(float(per_example.sqrt().mean()), rel=1e-5)
    assert "80.00% of 5 decisions" in str(result)


def test_without_labels_classes_are_the_first_networks_decisions() -> None:
    result = compared(SCORES, SCORES + SHIFT)
    assert result.accuracy is None
    assert [(row.label, row.count, row.agreement) for row in result.per_class] == [
        (0, 2, 0.5), (1, 2, 1.0), (2, 1, 1.0),
    ]  # fmt: skip
    assert all(row.accuracy_after is None for row in result.per_class)


def test_negative_labels_are_ignored() -> None:
    some = compared(SCORES, SCORES + SHIFT, torch.tensor([0, 1, -100, -100, 1]))
    assert some.accuracy == (1.0, 1.0)
    assert sum(row.count for row in some.per_class) == 3
    assert compared(SCORES, SCORES, torch.full((5,), -100)).accuracy is None


def test_labels_may_have_extra_dims_but_must_be_as_many() -> None:
    assert compared(SCORES, SCORES, LABELS[:, None]).accuracy == (0.8, 0.8)
    with pytest.raises(DataError, match=r"labels of shape \(5, 2\) for decisions of shape \(5,\)"):
        compared(SCORES, SCORES, torch.zeros(5, 2))


def test_tokens_count_one_by_one_but_an_example_is_one_trial() -> None:
    tokens = SCORES.repeat(8, 4, 1).reshape(8, 20, 3)
    result = compared(tokens, tokens + SHIFT)
    assert result.decisions == 160
    assert result.agreement == pytest.approx(0.8)
    assert {flip.position for flip in result.flips} == {(3,), (8,), (13,), (18,)}
    assert result.interval == wilson(0.8 * 8, 8)


def test_the_memory_of_flips_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_FLIPS", 3)
    tally = Tally(CLASSES)
    for _ in range(4):
        tally.add(SCORES, SCORES.roll(1, 1))
    result = tally.result()
    assert [flip.index for flip in result.flips] == [0, 1, 2]
    assert result.agreement == 0.0


def test_output_error_is_relative_to_each_outputs_spread() -> None:
    x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    x[:, 1] += 1000  # a large mean does not make errors small
    regression = OutputMeaning(0, "regression")
    mean = x.mean(0, keepdim=True).expand_as(x)
    assert compared(x, mean, meaning=regression).output_error == pytest.approx(1.0, abs=1e-3)
    result = compared(x, mean + 1.1 * (x - mean), meaning=regression)
    assert result.output_error == pytest.approx(0.1, rel=1e-2)
    assert (result.agreement, result.interval, result.decisions) == (None, None, 0)
    assert math.isnan(float(result))
    assert "(1 is what predicting the mean gives)" in str(result)


@pytest.mark.parametrize(("pair", "which"), [((1, 0), "first"), ((0, 1), "second")])
def test_nan_is_refused_with_the_network_and_the_example(pair: tuple[int, int], which: str) -> None:
    bad = SCORES.clone()
    bad[2] = math.nan
    tally = Tally(CLASSES)
    tally.add(SCORES, SCORES)
    with pytest.raises(DataError, match=f"the {which} network's output is NaN near example 5"):
        tally.add(*((SCORES, bad)[i] for i in pair))


def test_outputs_of_other_shapes_are_refused() -> None:
    with pytest.raises(DataError, match=r"shapes \(5, 3\) and \(5, 2\)"):
        compared(SCORES, SCORES[:, :2])


TOKENS = torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(4))
LENGTHS = torch.tensor([5, 3, 1, 4, 0, 2])
MASK = torch.arange(5) < LENGTHS[:, None]


@pytest.mark.parametrize("kind", ["classification", "regression", "binary"])
def test_a_mask_gives_the_same_as_examples_of_different_lengths(kind: str) -> None:
    meaning, noise = OutputMeaning(0, kind), 0.7 * TOKENS.roll(1, 0)
    labels = TOKENS.argmax(-1) if kind == "classification" else None
    padded, cut = Tally(meaning), Tally(meaning)
    broken = torch.where(MASK[..., None], TOKENS + noise, math.nan)  # padding may hold anything
    padded.add(TOKENS, broken, labels, MASK)
    for index, length in enumerate(LENGTHS.tolist()):
        if length:
            part = (slice(index, index + 1), slice(0, length))
            part_labels = None if labels is None else labels[part]
            cut.add(TOKENS[part], (TOKENS + noise)[part], part_labels)
    first, second = padded.result(), cut.result()
    assert first.examples == second.examples == 5  # the example without tokens is left out
    assert first.decisions == second.decisions
    for name in ("agreement", "divergence", "distance", "output_error"):
        one, other = getattr(first, name), getattr(second, name)
        assert one == other if one is None else one == pytest.approx(other, rel=1e-9), name
    assert first.per_class == second.per_class
    assert first.accuracy == second.accuracy
    assert [f.position for f in first.flips] == [f.position for f in second.flips]
    assert {flip.index for flip in first.flips} <= {0, 1, 2, 3, 5}


def test_a_mask_of_pixels_and_a_mask_that_does_not_fit() -> None:
    scores = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(5))
    mask = torch.zeros(2, 4, 4, dtype=torch.bool)
    mask[:, :2] = True
    pixels = OutputMeaning(0, "segmentation")
    tally = Tally(pixels)
    tally.add(scores, torch.where(mask[:, None], scores, -scores), mask=mask)
    assert tally.result().agreement == 1
    assert tally.result().decisions == 16
    tally = Tally(CLASSES)
    tally.add(SCORES, SCORES, mask=torch.zeros(5, 9, dtype=torch.bool))  # of the inputs' tokens
    assert tally.result().decisions == 5


def test_a_mask_that_excludes_everything_is_refused() -> None:
    tally = Tally(CLASSES)
    tally.add(TOKENS, TOKENS, mask=torch.zeros(6, 5, dtype=torch.bool))
    with pytest.raises(DataError, match="excludes every position"):
        tally.result()


def test_other_outputs_get_an_error_beside_the_one_that_decides() -> None:
    box, label = torch.randn(5, 4, generator=torch.Generator().manual_seed(6)), SCORES.argmax(1)
    meaning = OutputMeaning(1, "classification", OutputLayout(("mask[0]", "cls", "box")))
    tally = Tally(meaning)
    tally.add([label, SCORES, box], [label, SCORES + SHIFT, 1.1 * box])
    result = tally.result()
    assert (result.output, result.agreement) == ("cls", 0.8)
    first, second = result.others
    assert (first.name, second.name, second.equal) == ("box", "mask[0]", 1.0)
    assert first.error == pytest.approx(0.1, rel=0.5)
    text = " ".join(result.notes)
    assert "Judged by the output 'cls'; choose another with output=" in text
    assert "(1 is what predicting the mean gives): box 0.1" in text
    assert "Equal entries of other outputs: mask[0] 100.00%." in text
    assert compared(SCORES, SCORES).notes == ()


def test_many_other_outputs_are_named_in_part() -> None:
    names = tuple(f"[{number}]" for number in range(10))
    tally = Tally(OutputMeaning(0, "classification", OutputLayout(names)))
    tally.add([SCORES] * 10, [SCORES] * 10)
    assert "[6] 0 and 3 more." in tally.result().notes[1]
    assert len(tally.result().others) == 9
