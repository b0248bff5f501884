"""Counting, selecting, splitting and merging batches."""

from __future__ import annotations

import pytest
import torch

from interpress import DataError
from interpress.data.batches import batch_size, can_merge, merge_batches, split_batch, take
from interpress.graph.example import Example

X = torch.arange(60.0).reshape(20, 3)
MASK = torch.ones(1, 3)  # no batch dim: shared by all examples


def test_the_first_tensor_with_a_dim_counts_the_examples() -> None:
    assert batch_size(Example((X,))) == 20
    assert batch_size(Example((torch.tensor(2.0),), {"input": X[:7], "mask": MASK})) == 7


@pytest.mark.parametrize("example", [Example((X[:0],)), Example((torch.tensor(1.0),)), Example(())])
def test_a_batch_without_examples_is_refused(example: Example) -> None:
    with pytest.raises(DataError, match="holds no example; give tensors with a batch dim"):
        batch_size(example)


def test_taking_examples_keeps_what_is_shared() -> None:
    taken = take(Example((X,), {"mask": MASK, "flag": True}), torch.tensor([3, 11]))
    assert torch.equal(taken.args[0], X[[3, 11]])
    assert taken.kwargs["mask"] is MASK
    assert taken.kwargs["flag"] is True


@pytest.mark.parametrize(
    ("most", "sizes"), [(None, [20]), (20, [20]), (19, [10, 10]), (7, [7, 7, 6]), (1, [1] * 20)]
)
def test_batches_are_split_into_the_fewest_equal_parts(most: int | None, sizes: list[int]) -> None:
    parts = split_batch(Example((X,), {"mask": MASK}), most)
    assert [batch_size(part) for part in parts] == sizes
    assert torch.equal(torch.cat([part.args[0] for part in parts]), X)
    assert all(torch.equal(part.kwargs["mask"], MASK) for part in parts)


def test_merging_keeps_what_has_no_batch_dim() -> None:
    parts = [Example((X[:4],), {"mask": MASK}), Example((X[4:9],), {"mask": MASK})]
    whole = merge_batches(parts)
    assert torch.equal(whole.args[0], X[:9])
    assert whole.kwargs["mask"].shape == (1, 3)
    assert merge_batches(parts[:1]) is parts[0]


@pytest.mark.parametrize(
    ("other", "mergeable"),
    [
        (Example((X[:5],)), True),
        (Example((X[:5, :2],)), False),  # another shape
        (Example((X[:5].double(),)), False),  # another dtype
        (Example((X[:5],), {"flag": True}), False),  # another input
    ],
)
def test_batches_merge_if_only_their_examples_differ(other: Example, mergeable: bool) -> None:
    assert can_merge(Example((X,)), other) == mergeable


def test_batches_with_a_shared_tensor_are_not_merged() -> None:
    """The shared tensor may differ from batch to batch, and only one of them could be kept."""
    first, second = (Example((part,), {"mask": MASK}) for part in X.split(10))
    assert not can_merge(first, second)
