"""Labels of heads that are repeated, as keys and values are for the query heads that share them.

A dim of G groups becomes a dim of G * M members: every index occurs M times in a row. Two things
can then be removed: a group with all its members, and single members, equally many of every group.
So the members get labels of their own, and a `Copies` record says which group each belongs to.
Channels that vary over the groups are copied: a copy is the same channel, read at another member.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from interpress.labels.labelling import FIXED, Labelling, merged_dims
from interpress.labels.trace import Copies, Op, Value


def counting(op: Op, ndim: int, dim: int, times: int) -> Labelling:
    """Return the slab labelling of a dim that counts the members of every group."""
    labels = op.trace.fresh(times)
    op.trace.slab_ids.append(labels)
    shape = [1] * ndim
    shape[dim] = times
    return Labelling(labels.reshape(shape), slab=True, counts=True)


def may_be_groups(value: Value, dim: int) -> bool:
    """Return whether the indices of a dim may be heads that others share.

    They have slab labels then, or there is just one. A mask, without channels, has no heads.
    """
    if dim < 0 or value.weight is not None or not value.channels():
        return False
    return value.shape[dim] == 1 or _slab(value, dim) is not None


def repeated(op: Op, value: Value, dim: int, places: Labelling) -> tuple[Value, Copies]:
    """Return the value with every index of `dim` repeated once per place, and what is a copy."""
    groups, times = value.shape[dim], places.labels.numel()
    size = [1] * len(value.shape)
    size[dim] = groups * times
    slab = _slab(value, dim)
    members = op.trace.fresh(groups * times)
    op.trace.slab_ids.append(members)
    labellings, copied = [], [torch.zeros(2, 0, dtype=torch.long)]
    joint = []
    for labelling in value.labellings:
        labels = labelling.labels
        if labelling.slab or (slab is not None and labels.shape[dim] == 1):
            if labelling is not slab:
                labellings.append(labelling)
            continue
        originals = labels.repeat_interleave(times, dim)
        fresh = op.trace.fresh(originals.numel()).reshape(originals.shape)
        copies = torch.where(originals == FIXED, FIXED, fresh)
        labellings.append(replace(labelling, labels=copies))
        joint.append(torch.stack(torch.broadcast_tensors(copies, members.reshape(size))))
        copied.append(torch.stack([copies.reshape(-1), originals.reshape(-1)]))
    labellings.append(Labelling(members.reshape(size), slab=True))
    shape = (*value.shape[:dim], groups * times, *value.shape[dim + 1 :])
    copies_made = Copies(
        None if slab is None else slab.labels.reshape(-1),
        members.reshape(groups, times),
        places.labels.reshape(-1),
        torch.cat([pairs.reshape(2, -1) for pairs in joint], 1) if joint else copied[0],
        torch.cat(copied, 1),
        op.location,
    )
    op.trace.copies.append(copies_made)
    return replace(value, shape=shape, labellings=tuple(labellings)), copies_made


def with_merged_members(op: Op, value: Value, new_shape: tuple[int, ...]) -> Value:
    """Return the value with dims of members merged into the dims of groups before them.

    This is done where a view into `new_shape` merges them. A dim of members that is merged or split
    in any other way has no labels afterwards.
    """
    for places in [labelling for labelling in value.labellings if labelling.counts]:
        (dim,) = places.support
        others = tuple(labelling for labelling in value.labellings if labelling is not places)
        block = next(dims for dims in merged_dims(value.shape, new_shape) if dim in dims)
        if len(block) == 1 and value.shape[dim] in new_shape:
            continue
        value = replace(value, labellings=others)
        if dim - 1 in block and may_be_groups(value, dim - 1):
            labellings = tuple(la.moved(la.labels.squeeze(dim)) for la in others)
            shape = (*value.shape[:dim], *value.shape[dim + 1 :])
            merged = replace(value, shape=shape, labellings=labellings)
            value, _ = repeated(op, merged, dim - 1, places)
    return value


def _slab(value: Value, dim: int) -> Labelling | None:
    """Return the labels of whole indices of a dim."""
    return next((la for la in value.labellings if la.slab and la.support == (dim,)), None)
