"""Heads that are repeated get labels of their own, and a record of the groups they belong to."""

from __future__ import annotations

from dataclasses import replace

import torch
from tests.labels.toys import an_op, elements, labelled

from interpress.labels.copies import counting, may_be_groups, repeated, with_merged_members
from interpress.labels.labelling import Labelling
from interpress.labels.movement import view
from interpress.labels.trace import Op, Value

SHAPE = (2, 3, 4)  # batch, heads, dims


def heads(op: Op) -> Value:
    """Two batches of three heads with four dims each."""
    return Value(SHAPE, view(op, labelled(op, (2, 12), 1), SHAPE))


def slab(value: Value, dim: int) -> torch.Tensor:
    return next(la.labels for la in value.labellings if la.slab and la.support == (dim,)).flatten()


def test_every_head_and_channel_is_copied_once_per_place() -> None:
    op = an_op()
    value = heads(op)
    many, copies = repeated(op, value, 1, counting(op, 1, 0, 2))
    assert many.shape == (2, 6, 4)
    assert copies.members.shape == (3, 2)
    assert copies.groups is not None
    assert torch.equal(copies.groups, slab(value, 1))
    assert torch.equal(slab(many, 1), copies.members.flatten())
    assert torch.equal(slab(many, 2), slab(value, 2))
    (before,), (after,) = value.channels(), many.channels()
    assert after.labels.unique().numel() == 24
    assert torch.equal(copies.originals(after.labels), before.labels.repeat_interleave(2, 1))
    members = dict(zip(*copies.joint.tolist(), strict=True))
    expected = copies.members.flatten()[:, None].expand(6, 4)
    assert [
        members[label] for label in after.labels.flatten().tolist()
    ] == expected.flatten().tolist()
    assert op.trace.copies == [copies]


def test_one_head_has_members_and_no_group() -> None:
    op = an_op()
    value = labelled(op, (2, 1, 4), 2)
    many, copies = repeated(op, value, 1, counting(op, 1, 0, 5))
    assert copies.groups is None
    assert copies.members.shape == (1, 5)
    (after,) = many.channels()
    assert after.labels.shape == (1, 5, 4)


def test_heads_have_slabs_and_masks_have_no_channels() -> None:
    op = an_op()
    assert may_be_groups(heads(op), 1)
    assert may_be_groups(labelled(op, (2, 1, 4), 2), 1)
    assert not may_be_groups(labelled(op, SHAPE, 1), 1)  # channels, not heads
    assert not may_be_groups(labelled(op, SHAPE, 2), 1)
    assert not may_be_groups(Value((2, 1, 4)), 1)
    assert not may_be_groups(labelled(op, (1, 4), 1, weight="w"), 0)


def expanded(op: Op) -> Value:
    """The same heads as `repeat_kv` of transformers has them before its reshape: (2, 3, 2, 4)."""
    value = heads(op)
    wide = tuple(la.moved(la.labels.unsqueeze(2)) for la in value.labellings)
    return Value((2, 3, 2, 4), (*wide, counting(op, 4, 2, 2)))


def test_a_view_merges_members_into_groups() -> None:
    op = an_op()
    value = expanded(op)
    merged = Value((2, 6, 4), view(op, value, (2, 6, 4)))
    (copies,) = op.trace.copies
    assert torch.equal(slab(merged, 1), copies.members.flatten())
    assert torch.equal(copies.places, slab(value, 2))


def test_other_views_keep_or_drop_the_places() -> None:
    op = an_op()
    value = expanded(op)
    assert with_merged_members(op, value, (2, 3, 2, 2, 2)) is value
    assert not any(la.counts for la in with_merged_members(op, value, (2, 3, 8)).labellings)
    assert op.trace.copies == []


def test_a_fixed_label_stays_fixed() -> None:
    op = an_op()
    value = heads(op)
    (channels,) = value.channels()
    labels = channels.labels.clone()
    labels[..., 0] = 0
    others = [la for la in value.labellings if la.slab]
    value = replace(value, labellings=(Labelling(labels), *others))
    (after,) = repeated(op, value, 1, counting(op, 1, 0, 2))[0].channels()
    assert bool((elements(after, (2, 6, 4))[..., 0] == 0).all())
