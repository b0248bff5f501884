from __future__ import annotations

import pytest
import torch
from tests.labels.toys import an_op, frozen, labelled, same

from interpress.labels.labelling import FIXED, Labelling
from interpress.labels.relations import align, balance, mix, uniform, without
from interpress.labels.trace import Value


@pytest.mark.parametrize(
    ("x_shape", "y_shape", "y_dims"),
    [((2, 4, 3), (4, 1), (0,)), ((2, 4, 3), (2, 4, 3), (1,)), ((2, 4, 1), (4, 5), (0,))],
)
def test_align_unites_labels_that_meet(x_shape: tuple, y_shape: tuple, y_dims: tuple) -> None:
    op = an_op()
    x, y = labelled(op, x_shape, 1), labelled(op, y_shape, *y_dims)
    result = align(op, x, y)
    shape = torch.broadcast_shapes(x_shape, y_shape)
    assert result.shape == tuple(shape)
    x_labels = x.labellings[0].labels.expand(shape).reshape(-1).tolist()
    y_labels = y.labellings[0].labels.expand(shape).reshape(-1).tolist()
    assert same(op) == set(zip(x_labels, y_labels, strict=True))
    assert torch.equal(result.labellings[0].labels, x.labellings[0].labels)
    assert frozen(op) == set()


def test_align_keeps_labels_of_dims_that_only_one_value_has() -> None:
    op = an_op()
    rows, columns = labelled(op, (4, 1), 0), labelled(op, (1, 5), 1)
    result = align(op, rows, columns)
    assert [labelling.support for labelling in result.labellings] == [(0,), (1,)]
    assert not same(op)


def test_align_freezes_channels_that_meet_a_dim_without_labels() -> None:
    op = an_op()
    x = labelled(op, (2, 4), 1)
    align(op, x, Value((4,)))
    assert frozen(op) == set(x.labellings[0].labels.reshape(-1).tolist())
    assert "aten.relu combines its channels with values that cannot shrink" in op.trace.frozen[0][1]


def test_align_freezes_only_the_channels_that_meet_fixed_labels() -> None:
    op = an_op()
    x = labelled(op, (4,), 0)
    y = Value((4,), (Labelling(torch.tensor([9, FIXED, 8, FIXED])),))
    align(op, x, y)
    labels = x.labellings[0].labels.tolist()
    assert frozen(op) == {labels[1], labels[3]}
    assert same(op) == {(labels[0], 9), (labels[2], 8)}


def test_uniform_unites_labels_along_the_window_and_leaves_others() -> None:
    op = an_op()
    labels = op.trace.fresh(12).reshape(4, 3)
    labellings = uniform(op, Value((4, 3), (Labelling(labels),)), [-1])
    assert labellings[0].labels.tolist() == labels[:, :1].tolist()
    pairs = {(int(row[0]), int(label)) for row in labels for label in row[1:]}
    assert same(op) == pairs
    unchanged = labelled(op, (4, 3), 0)
    assert uniform(op, unchanged, [1]) == unchanged.labellings


def test_mix_freezes_labels_along_its_dims_only() -> None:
    op = an_op()
    value = labelled(op, (4, 3), 0, 1)
    assert mix(op, value, [-1], "adds them up") == value.labellings
    assert frozen(op) == set(value.labellings[1].labels.reshape(-1).tolist())
    assert op.trace.frozen[0][1] == "aten.relu adds them up"


def test_mix_freezes_the_slab_of_a_dim_that_channels_span_with_others() -> None:
    op = an_op()
    channels = Labelling(op.trace.fresh(6).reshape(2, 3))
    heads = Labelling(op.trace.fresh(2).reshape(2, 1), slab=True)
    dims = Labelling(op.trace.fresh(3).reshape(1, 3), slab=True, inner=True)
    mix(op, Value((2, 3), (channels, heads, dims)), [1])
    assert frozen(op) == set(dims.labels.reshape(-1).tolist())
    assert [labels.tolist() for labels in op.trace.attached] == [heads.labels.reshape(-1).tolist()]


def test_without_removes_labels_along_dims() -> None:
    op = an_op()
    value = labelled(op, (4, 3, 2), 0, 1, 2)
    assert [la.support for la in without(value.labellings, [0, -1], 3)] == [(1,)]
    assert without((), [], 0) == ()


def test_without_turns_the_inner_slab_into_channels() -> None:
    op = an_op()
    channels = Labelling(op.trace.fresh(6).reshape(2, 3))
    heads = Labelling(op.trace.fresh(2).reshape(2, 1), slab=True)
    dims = Labelling(op.trace.fresh(3).reshape(1, 3), slab=True, inner=True)
    (kept,) = without((channels, heads, dims), [0], 2)
    assert torch.equal(kept.labels, dims.labels)
    assert not kept.slab


def test_balance_records_blocks_of_more_than_one_channel() -> None:
    op = an_op()
    balance(op, torch.arange(1, 13), 3)
    ((blocks, where),) = op.trace.balanced
    assert blocks.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]
    assert where == "aten.relu"
    for labels, count in ((torch.arange(12), 1), (torch.arange(12), 5), (torch.arange(3), 3)):
        balance(op, labels, count)
    assert len(op.trace.balanced) == 1
