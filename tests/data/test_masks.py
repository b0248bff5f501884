"""Masks: from attention masks, labels of -100 and `mask=`, through splitting and merging."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from interpress import ArgumentError, DataError
from interpress.data.batches import can_merge, merge_batches, split_batch, take
from interpress.data.calibration_set import CalibrationSet
from interpress.data.masks import check_mask, masks_of
from interpress.graph.example import Example

IDS = torch.arange(1, 25).reshape(4, 6)
LENGTHS = torch.tensor([6, 3, 5, 1])
COUNTS = torch.arange(6) < LENGTHS[:, None]  # (4, 6)
ATTENTION = COUNTS.long()


class Tokens(nn.Module):
    """Takes token ids and an attention mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 4)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.embedding(input_ids)


def only_mask(batch: Any, mask: Any = None) -> Tensor:
    (found,) = masks_of(batch, mask, 4)
    assert found.dtype == torch.bool
    return found


@pytest.mark.parametrize("wrap", [dict, UserDict])
@pytest.mark.parametrize("values", [ATTENTION, COUNTS, ATTENTION.float(), ATTENTION.numpy()])
def test_an_attention_mask_says_which_positions_count(wrap: type, values: Any) -> None:
    batch = wrap({"input_ids": IDS, "attention_mask": values})
    assert torch.equal(only_mask(batch), COUNTS)


def test_a_batch_without_a_mask_has_none() -> None:
    assert masks_of(IDS, None, 4) == ()
    assert masks_of((IDS, COUNTS), None, 4) == ()
    assert masks_of({"input_ids": IDS}, None, 4) == ()


@pytest.mark.parametrize("name", ["labels", "label_ids"])
def test_labels_of_minus_100_exclude_positions(name: str) -> None:
    labels = torch.where(COUNTS, IDS, -100)
    assert torch.equal(only_mask({"input_ids": IDS, name: labels}), COUNTS)


@pytest.mark.parametrize(
    "labels",
    [
        torch.full((4, 6), -100),  # no labels at all
        IDS,  # none of them is -100
        torch.tensor([1, -100, 2, -100]),  # one label per example, not per position
        torch.full((4, 6), -100.0).index_fill(1, torch.tensor([0]), 1.0),  # numbers to predict
    ],
)
def test_labels_that_say_nothing_about_positions_are_no_mask(labels: Tensor) -> None:
    assert masks_of({"input_ids": IDS, "labels": labels}, None, 4) == ()


def test_masks_of_the_same_shape_are_combined() -> None:
    labels = torch.where(torch.arange(6) >= 2, IDS, -100).expand(4, 6)
    batch = {"input_ids": IDS, "attention_mask": ATTENTION, "labels": labels}
    assert torch.equal(only_mask(batch), COUNTS & (torch.arange(6) >= 2))


def test_encoder_and_decoder_keep_a_mask_each() -> None:
    decoder = torch.tensor([[1, 1, 0]] * 4)
    batch = {"attention_mask": ATTENTION, "decoder_attention_mask": decoder}
    example = Example((IDS,), {}, masks_of(batch, None, 4))
    assert [mask.shape for mask in example.masks] == [(4, 6), (4, 3)]
    for length, expected in ((6, COUNTS), (3, decoder.bool())):
        mask = example.mask_for(torch.zeros(4, length, 32))
        assert mask is not None
        assert torch.equal(mask, expected)
    assert example.mask_for(torch.zeros(4, 5, 32)) is None
    assert example.mask_for(torch.zeros(4, 32)) is None


def test_one_row_per_query_is_no_mask_of_positions() -> None:
    assert masks_of({"attention_mask": torch.ones(4, 6, 6)}, None, 4) == ()
    assert masks_of({"attention_mask": torch.ones(1, 6)}, None, 4) == ()  # shared by all examples


def test_the_users_mask_replaces_those_of_the_batch() -> None:
    own = torch.arange(6) > 3
    batch = {"input_ids": IDS, "attention_mask": ATTENTION, "valid": own.expand(4, 6)}
    assert torch.equal(only_mask(batch, "valid"), own.expand(4, 6))
    assert torch.equal(only_mask(batch, lambda batch: batch["input_ids"] > 8), IDS > 8)
    assert torch.equal(only_mask(IDS, lambda batch: batch != 3), IDS != 3)


@pytest.mark.parametrize("mask", [3, "", True, ["attention_mask"], COUNTS])
def test_a_mask_is_a_key_or_a_function(mask: Any) -> None:
    with pytest.raises(ArgumentError, match=r"(?s)mask=.*give a key of the batch.*or a function"):
        check_mask(mask)
    check_mask(None)
    check_mask("valid")
    check_mask(len)


@pytest.mark.parametrize(
    ("batch", "mask", "message"),
    [
        ({"input_ids": IDS}, "valid", r"mask='valid' is not a key of calibration batch 7.*'input_"),
        (IDS, "valid", r"mask='valid' is not a key of calibration batch 7, a Tensor with no keys"),
        ({"valid": [1, 2]}, "valid", r"mask= gives NoneType for calibration batch 7 of 4 examples"),
        (IDS, lambda batch: None, r"gives NoneType .*\(examples, positions\)"),
        (IDS, lambda batch: batch[:2], r"gives \(2, 6\) for calibration batch 7 of 4 examples"),
        (IDS, lambda batch: batch[:, 0], r"gives \(4,\) for calibration batch 7"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(batch: Any, mask: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        masks_of(batch, mask, 4, 7)


def example_with_masks(first: int = 0, last: int = 4) -> Example:
    part = slice(first, last)
    return Example((IDS[part],), {}, (COUNTS[part], COUNTS[part, :2]))


def test_taking_and_splitting_keep_every_example_with_its_mask() -> None:
    taken = take(example_with_masks(), torch.tensor([3, 1]))
    assert torch.equal(taken.masks[0], COUNTS[[3, 1]])
    parts = split_batch(example_with_masks(), 3)
    assert [len(part.masks[0]) for part in parts] == [2, 2]
    for index, whole in enumerate((COUNTS, COUNTS[:, :2])):
        assert torch.equal(torch.cat([part.masks[index] for part in parts]), whole)


def test_merging_keeps_masks() -> None:
    parts = [example_with_masks(0, 1), example_with_masks(1, 4)]
    assert can_merge(*parts)
    merged = merge_batches(parts)
    assert torch.equal(merged.args[0], IDS)
    assert torch.equal(merged.masks[0], COUNTS)
    assert torch.equal(merged.masks[1], COUNTS[:, :2])
    assert not can_merge(parts[0], Example((IDS,)))  # one with masks, one without


@pytest.mark.parametrize("part", ["all", "fit", "held"])
def test_a_calibration_set_gives_every_example_its_mask(part: Any) -> None:
    ids = torch.arange(1, 26).reshape(25, 1) * torch.ones(1, 6, dtype=torch.long)
    mask = torch.arange(6) < ids % 6 + 1  # (25, 6), and known from the ids
    batches = [
        {"input_ids": i, "attention_mask": m.long()}
        for i, m in zip(ids.split(10), mask.split(10), strict=True)
    ]
    calibration = CalibrationSet(batches, Tokens())
    for examples in (calibration.batches(part), calibration.gathered(part, 4)):
        for example in examples:
            expected = torch.arange(6) < example.kwargs["input_ids"] % 6 + 1
            assert torch.equal(example.masks[0], expected)
    assert len(calibration.first().masks[0]) == 4


def test_labels_beside_a_dict_of_inputs_do_not_hide_its_mask() -> None:
    batch = ({"input_ids": IDS, "attention_mask": ATTENTION}, torch.zeros(4))
    (example,) = CalibrationSet([batch], Tokens()).batches()
    (mask,) = example.masks
    assert torch.equal(mask, COUNTS)
    assert torch.equal(only_mask(batch, "input_ids"), IDS != 0)
    assert torch.equal(only_mask(batch, lambda batch: batch[0]["input_ids"] > 8), IDS > 8)


def test_masks_are_used_with_a_forward_of_the_user() -> None:
    batch = {"ids": IDS, "attention_mask": ATTENTION}
    calibration = CalibrationSet(
        [batch], Tokens(), forward=lambda model, batch: model(batch["ids"])
    )
    (example,) = calibration.batches()
    assert torch.equal(example.masks[0], COUNTS)
