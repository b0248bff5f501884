"""Sampled rows depend on the number of an example and its own positions, never on its batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interpress.graph.rows import BatchRows

LENGTHS = torch.tensor([3, 20, 11, 1, 20, 7, 16, 12])


def taken(
    lengths: Tensor, sizes: list[int], per_example: int, padding: int, seed: int = 0
) -> list[tuple[int, int, bool]]:
    """Return the number, position and half of every row that is taken from padded batches."""
    rows: list[tuple[int, int, bool]] = []
    first = 0
    for part in lengths.split(sizes):
        longest = int(part.max()) + padding
        mask = torch.arange(longest) < part[:, None]
        batch = BatchRows(len(part), first, (mask,), seed)
        at = batch.sample(mask.numel(), per_example)
        assert at is not None
        halves = batch.halves(mask.numel(), at)
        numbers, positions = first + at // longest, at % longest
        rows += zip(numbers.tolist(), positions.tolist(), halves.tolist(), strict=True)
        first += len(part)
    return rows


@pytest.mark.parametrize("per_example", [1, 4, 16])
@pytest.mark.parametrize(("sizes", "padding"), [([8], 5), ([1] * 8, 0), ([3, 5], 2)])
def test_batches_of_any_size_and_padding_give_the_same_rows(
    sizes: list[int], padding: int, per_example: int
) -> None:
    expected = taken(LENGTHS, [8], per_example, 0)
    assert taken(LENGTHS, sizes, per_example, padding) == expected
    for number, length in enumerate(LENGTHS.tolist()):
        positions = [position for owner, position, _ in expected if owner == number]
        assert positions == sorted(positions)
        assert len(positions) == min(length, per_example)
        assert max(positions) < length
    assert all(in_second == (number % 2 == 1) for number, _, in_second in expected)


def test_a_mask_of_ones_changes_nothing() -> None:
    for rows, per_example in ((60, 4), (60, 9), (600, 16)):
        plain, masked = BatchRows(6), BatchRows(6, masks=(torch.ones(6, rows // 6),))
        sample = plain.sample(rows, per_example)
        assert sample is not None
        assert torch.equal(sample, masked.sample(rows, per_example))


def test_one_row_is_taken_from_each_interval_and_the_seed_chooses_it() -> None:
    samples = []
    for seed in (0, 1):
        sample = BatchRows(3, first=7, seed=seed).sample(300, 5)
        assert sample is not None
        expected = torch.arange(0, 300, 20)  # intervals of 20 rows in examples of 100
        assert torch.equal(sample // 20 * 20, expected)
        samples.append(sample)
    assert not torch.equal(samples[0], samples[1])


def test_rows_of_short_examples_are_all_taken() -> None:
    assert BatchRows(10).sample(10, 4) is None
    assert BatchRows(10).sample(40, 4) is None
    assert BatchRows(10).sample(41, 50) is None  # these rows do not divide among the examples


def test_a_mask_of_another_shape_is_ignored() -> None:
    mask = torch.zeros(4, 7)
    batch = BatchRows(4, masks=(mask,))
    assert batch.counting(4) is None
    assert batch.counting(4 * 8) is None
    counts = batch.counting(4 * 7)
    assert counts is not None
    assert not bool(counts.any())
    sample = batch.sample(4 * 7, 3)
    assert sample is not None
    assert len(sample) == 0


def test_the_mask_with_as_many_positions_is_used() -> None:
    """An encoder and a decoder have masks of their own."""
    encoder, decoder = torch.ones(2, 5), torch.tensor([[1, 0, 0], [1, 1, 0]])
    batch = BatchRows(2, masks=(encoder, decoder))
    counts = batch.counting(6)
    assert counts is not None
    assert counts.tolist() == [True, False, False, True, True, False]
    sample = batch.sample(6, 2)
    assert sample is not None
    assert sample.tolist() == [0, 3, 4]


def test_every_other_example_is_in_the_second_half() -> None:
    assert BatchRows(3, first=1).halves(6, None).tolist() == [True, True, False, False, True, True]
    at = torch.tensor([0, 2, 5])
    assert BatchRows(3, first=1).halves(6, at).tolist() == [True, False, True]


def test_a_single_example_is_cut_in_the_middle() -> None:
    batch = BatchRows(1, alone=True)
    assert batch.halves(5, None).tolist() == [False, False, True, True, True]
    assert batch.halves(5, torch.tensor([1, 4])).tolist() == [False, True]
    assert batch.halves(1, None).tolist() == [False]
