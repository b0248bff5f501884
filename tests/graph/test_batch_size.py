"""Whether a large batch is treated as the examples in it."""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.graph.batch_size import same_for_each_batch
from interpress.graph.example import Example

BATCHES = [Example((torch.randn(2, 3),), {"y": torch.randn(2, 3)}) for _ in range(2)]


def each(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    return {"sum": x + y, "sign": x > y}


def test_examples_alone_or_together() -> None:
    assert same_for_each_batch(each, each, BATCHES)
    assert not same_for_each_batch(each, lambda x, y: each(x, y * 1.01), BATCHES)
    assert not same_for_each_batch(each, lambda x, y: each(x, y)["sum"].view(2, 3), BATCHES)
    centred = lambda x, y: {"sum": x - x.mean(0), "sign": x > y}  # noqa: E731
    assert not same_for_each_batch(centred, centred, BATCHES)
    changed = lambda x, y: {"sum": x + y, "sign": x <= y}  # noqa: E731
    assert not same_for_each_batch(each, changed, BATCHES)
