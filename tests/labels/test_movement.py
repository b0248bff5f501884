from __future__ import annotations

import itertools

import pytest
import torch
from tests.labels.toys import an_op, elements, frozen, labelled, same
from torch import Tensor

from interpress.labels.labelling import FIXED, Labelling
from interpress.labels.movement import cut, interleave, join, take, view
from interpress.labels.trace import Op, Value

SHAPE = (2, 6, 4)


def channels_and_slabs(op: Op) -> Value:
    """(2, 6, 4) with a labelling over dims 1 and 2 and a slab for each of them."""
    flat = labelled(op, (2, 24), 1)
    return Value(SHAPE, view(op, flat, SHAPE))


def agrees(value: Value, moved: tuple[Labelling, ...], expected, shape: tuple[int, ...]) -> None:
    """Every labelling that still varies is what the operator makes of the labels."""
    wanted = [expected(elements(la, value.shape)) for la in value.labellings]
    wanted = [labels for labels in wanted if labels.unique().numel() > 1]
    assert len(moved) == len(wanted)
    for labelling, labels in zip(moved, wanted, strict=True):
        assert torch.equal(elements(labelling, shape), labels)


@pytest.mark.parametrize(
    "shape", [(12, 4), (2, 24), (2, 3, 2, 4), (2, 6, 2, 2), (2, 1, 6, 4), (48,), (4, 3, 4)]
)
@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 1), (1, 2)])
def test_view_moves_labels_as_elements_move(shape: tuple, dims: tuple) -> None:
    op = an_op()
    value = labelled(op, SHAPE, *dims)
    moved = view(op, value, shape)
    agrees(
        value,
        tuple(la for la in moved if not la.slab),
        lambda labels: labels.reshape(shape),
        shape,
    )


def test_view_that_splits_channels_adds_slabs_and_balances_blocks() -> None:
    op = an_op()
    moved = view(op, labelled(op, (5, 12), 1), (5, 3, 4))
    joint, outer, inner = moved
    assert [la.support for la in moved] == [(1, 2), (1,), (2,)]
    assert [(la.slab, la.inner) for la in moved] == [(False, False), (True, False), (True, True)]
    ((blocks, _),) = op.trace.balanced
    assert torch.equal(blocks, joint.labels.reshape(3, 4))
    (grid,) = op.trace.grids
    assert torch.equal(grid.joint, joint.labels)
    assert grid.slabs == (outer, inner)
    assert not op.trace.attached


def test_view_that_merges_in_another_order_drops_whole_slabs_only() -> None:
    op = an_op()
    split = Value((5, 3, 4), view(op, labelled(op, (5, 12), 1), (5, 3, 4)))
    swapped = tuple(la.moved(la.labels.transpose(1, 2)) for la in split.labellings)
    merged = view(op, Value((5, 4, 3), swapped), (5, 12))
    inner = split.labellings[2].labels.reshape(-1)
    assert [labels.tolist() for labels in op.trace.attached] == [inner.tolist()]
    expected = split.labellings[0].labels.transpose(1, 2).reshape(1, 12)
    assert torch.equal(next(la for la in merged if not la.slab).labels, expected)


@pytest.mark.parametrize(("dim", "start", "stop"), [(1, 0, 3), (1, 1, 5), (-1, 2, 4), (0, 0, 2)])
def test_cut_narrows_labels(dim: int, start: int, stop: int) -> None:
    op = an_op()
    value = channels_and_slabs(op)

    def narrowed(labels: Tensor) -> Tensor:
        return labels.narrow(dim, start, stop - start)

    shape = tuple(narrowed(torch.empty(SHAPE)).shape)
    agrees(value, cut(op, value, dim, start, stop), narrowed, shape)
    assert not frozen(op)


def test_equal_pieces_stay_equal_and_single_channels_freeze() -> None:
    op = an_op()
    value = labelled(op, (2, 6), 1)
    labels = value.labellings[0].labels.reshape(-1)
    cut(op, value, 1, 3, 6)
    ((blocks, _),) = op.trace.balanced
    assert torch.equal(blocks, labels.reshape(2, 3))
    cut(op, value, 1, 0, 4)  # not one of several equal pieces
    assert len(op.trace.balanced) == 1
    assert cut(op, value, 1, 2, 3) == ()
    assert frozen(op) == {int(labels[2])}


@pytest.mark.parametrize(("dim", "index"), [(0, 1), (1, 4), (-1, 0)])
def test_take_selects_labels_and_freezes_those_along_the_dim(dim: int, index: int) -> None:
    op = an_op()
    value = channels_and_slabs(op)
    shape = tuple(torch.empty(SHAPE).select(dim, index).shape)
    agrees(value, take(op, value, dim, index), lambda t: t.select(dim, index), shape)
    along = [la for la in value.labellings if la.support == (dim % 3,)]
    assert frozen(op) == {int(n) for la in along for n in la.labels.reshape(-1)}


@pytest.mark.parametrize(("dim", "repeats"), list(itertools.product([0, 1, 2], [1, 3])))
def test_interleave_repeats_labels_in_a_row(dim: int, repeats: int) -> None:
    op = an_op()
    for labelling in channels_and_slabs(op).labellings:
        moved = interleave(labelling, repeats, dim)
        expected = elements(labelling, SHAPE).repeat_interleave(repeats, dim)
        assert torch.equal(elements(moved, tuple(expected.shape)), expected)


def test_join_puts_labels_one_after_the_other() -> None:
    op = an_op()
    x, y, plain = labelled(op, (2, 3), 1), labelled(op, (2, 4), 1), Value((2, 2))
    (joined,) = join(op, [x, plain, y], -1)
    first, last = (v.labellings[0].labels.reshape(-1).tolist() for v in (x, y))
    assert joined.labels.tolist() == [[*first, FIXED, FIXED, *last]]
    assert not same(op)
    assert not frozen(op)


def test_join_unites_labels_along_the_other_dims() -> None:
    op = an_op()
    x, y = labelled(op, (2, 3), 1), labelled(op, (4, 3), 1)
    (joined,) = join(op, [x, y], 0)
    assert torch.equal(joined.labels, x.labellings[0].labels)
    pairs = zip(*(v.labellings[0].labels.reshape(-1).tolist() for v in (x, y)), strict=True)
    assert same(op) == set(pairs)


def test_join_keeps_slabs_only_if_every_value_has_them() -> None:
    op = an_op()
    x, y = channels_and_slabs(op), channels_and_slabs(op)
    both = join(op, [x, y], 1)
    assert [la.support for la in both if la.slab] == [(2,), (1,)]
    op = an_op()
    one = join(op, [channels_and_slabs(op), labelled(op, SHAPE, 1)], 1)
    assert not any(la.slab and la.support == (1,) for la in one)
