"""What users pass as calibration data, as batches in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, TensorDataset

from interpress import ArgumentError
from interpress.data.inputs import as_example
from interpress.data.sources import BATCH, SplitBatch, count_examples, rereadable
from interpress.graph.example import Example

X = torch.randn(250, 3, generator=torch.Generator().manual_seed(0))
Y = torch.zeros(250, dtype=torch.long)
MODEL = nn.Linear(3, 2)


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        return iter(X.split(90))


SOURCES: dict[str, tuple[Any, int | None]] = {  # and how many examples are known unread
    "tensor": (X, 250),
    "array": (X.numpy(), 250),
    "dict": ({"input": X, "label": Y}, 250),
    "tuple of tensors": ((X, Y), 250),
    "example": (Example((X,)), 250),
    "list of tensors": (list(X.split(90)), 250),
    "list of dicts": ([{"input": part} for part in X.split(90)], 250),
    "generator": ((part for part in X.split(90)), 250),  # can be read only once, and is kept
    "dataset": (TensorDataset(X, Y), 250),
    "stream": (Stream(), None),
    "loader": (DataLoader(TensorDataset(X, Y), batch_size=90), 250),
    "shuffled loader": (DataLoader(TensorDataset(X, Y), batch_size=90, shuffle=True), 250),
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_can_be_read_twice_in_the_same_order(name: str) -> None:
    source, count = SOURCES[name]
    batches = rereadable(source, MODEL)
    assert count_examples(batches) == count
    for _ in range(2):
        inputs = [as_example(batch, MODEL).tensors()[0] for batch in batches]
        assert torch.equal(torch.cat(inputs), X)
        assert max(map(len, inputs)) <= BATCH


@pytest.mark.parametrize("wrong", ["folder", None, b"x"])
def test_names_and_nothing_are_no_data(wrong: object) -> None:
    with pytest.raises(ArgumentError, match=f"data are a {type(wrong).__name__}; give a tensor"):
        rereadable(wrong, MODEL)


def test_what_cannot_be_iterated_over_is_no_data() -> None:
    with pytest.raises(ArgumentError, match="a int, which cannot be iterated over"):
        rereadable(3, MODEL)


def test_a_tuple_is_one_batch() -> None:
    with pytest.raises(ArgumentError, match="pass a list of batches"):
        rereadable((X[:100], X[100:]), MODEL)
    assert isinstance(rereadable((X, X), nn.Bilinear(3, 3, 2)), SplitBatch)


def test_a_loader_that_samples_or_drops_gives_as_many_examples_in_order() -> None:
    data = TensorDataset(X, Y)
    some = DataLoader(data, sampler=RandomSampler(data, num_samples=40), batch_size=20)
    inputs = [batch[0] for batch in rereadable(some, MODEL)]
    assert torch.equal(torch.cat(inputs), X[:40])
    whole = DataLoader(data, shuffle=True, drop_last=True, batch_size=150)
    inputs = [batch[0] for batch in rereadable(whole, MODEL)]
    assert torch.equal(torch.cat(inputs), X[:150])


def test_one_large_batch_is_read_in_parts_that_share_what_has_no_batch_dim() -> None:
    mask = torch.ones(1, 3)
    split = SplitBatch({"input": X, "mask": mask})
    parts = list(split)
    assert len(split) == len(parts) == 3
    assert [len(part["input"]) for part in parts] == [100, 100, 50]
    assert all(part["mask"] is mask for part in parts)


def test_batches_without_tensors_cannot_be_counted() -> None:
    assert count_examples([{"path": "a.png"}]) is None
    assert count_examples(iter([X])) is None
