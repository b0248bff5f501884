"""Sums of rows: updates, merges and restored tensors keep `Z.T @ Z`."""

import pytest
import torch
from tests.linalg.matrices import normal, relative_difference

from interpress.linalg.sums import KINDS, GramSum, RowSum, SinglePrecisionTsqrSum

CPU = torch.device("cpu")


def rounding(kind: type[RowSum]) -> float:
    return 1e-5 if kind is SinglePrecisionTsqrSum else 1e-13


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_sums_and_merges_hold_the_inner_products(kind: type[RowSum]) -> None:
    Z = normal(1300, 6)
    chunks = Z.to(kind.dtype).split(100)
    one = kind.empty(6, CPU).plus(chunks)
    merged = kind.empty(6, CPU).plus(chunks[:5]).merged(kind.empty(6, CPU).plus(chunks[5:]))
    for total in (one, merged):
        assert relative_difference(total.factor(1300).G, Z.T @ Z) < rounding(kind)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_sums_are_immutable(kind: type[RowSum]) -> None:
    rows = normal(20, 4).to(kind.dtype)
    one = kind.empty(4, CPU).plus([rows])
    before = one.factor(20).G
    one.plus([rows]).flushed()
    one.merged(one)
    assert len(one.pending) == 1
    assert one.additions == 0
    assert torch.equal(one.factor(20).G, before)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_restored_sums_are_equal(kind: type[RowSum]) -> None:
    rows = normal(700, 4).to(kind.dtype)
    one = kind.empty(4, CPU).plus(rows.split(300)).plus([rows[:3]])
    restored = kind.restored(one.tensors(), 4, one.additions)
    assert torch.equal(restored.factor(703).G, one.factor(703).G)
    with pytest.raises(ValueError, match="total of shape"):
        kind.restored(one.tensors(), 5, one.additions)


def test_many_small_batches_are_concatenated() -> None:
    one = GramSum.empty(4, CPU).plus(normal(100, 4).split(1))
    assert len(one.pending) < 64
    assert one.additions == 0
