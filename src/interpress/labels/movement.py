"""Labels under reshapes and cuts: what the rules of data movement share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from interpress.labels.labelling import FIXED, Labelling, Labellings, merged_dims, reshape, tidy
from interpress.labels.relations import align, balance
from interpress.labels.trace import Grid, Op, Value


def view(op: Op, value: Value, shape: Sequence[int]) -> Labellings:
    """Layers of the value viewed in another shape."""
    new = tuple(shape)
    _guard_order(op, value, new)
    moved = [
        labelling.moved(reshape(labelling.labels, value.shape, new))
        for labelling in value.labellings
    ]
    slabs = [labelling for labelling in moved if labelling.slab]
    for labelling in [
        labelling for labelling in moved if not labelling.slab and len(labelling.support) > 1
    ]:
        slabs += _split(op, labelling, slabs)
    return tidy([labelling for labelling in moved if not labelling.slab] + slabs)


def _guard_order(op: Op, value: Value, new: tuple[int, ...]) -> None:
    """Where dims merge in another order than they were split, single channels may not leave.

    Dropping dimension 3 of head 1 and dimension 5 of head 2 keeps `(heads, dims)` in order, but
    not `(dims, heads)`: there, whole slabs across all heads can leave.
    """
    for group in merged_dims(value.shape, new):
        for labelling in value.channels():
            varying = [dim for dim in group if dim in labelling.support]
            for slab in value.labellings:
                if slab.slab and slab.inner and slab.support[0] in varying[:-1]:
                    op.trace.attached.append(slab.labels.reshape(-1))


def _split(op: Op, labelling: Labelling, slabs: list[Labelling]) -> list[Labelling]:
    """Slab layers for a layer that spans several dims, and the blocks that this makes."""
    support = labelling.support
    labels = labelling.labels
    known = {slab.support: slab for slab in slabs if len(slab.support) == 1}
    if all((dim,) in known for dim in support):
        return []
    has_inner = any(slab.inner for dim, slab in known.items() if dim[0] in support)
    added = []
    for dim in support:
        if (dim,) not in known:
            size = [1] * labels.ndim
            size[dim] = labels.shape[dim]
            fresh = op.trace.fresh(labels.shape[dim])
            op.trace.slab_ids.append(fresh)
            inner = dim == support[-1] and not has_inner
            known[(dim,)] = Labelling(fresh.reshape(size), slab=True, inner=inner)
            added.append(known[(dim,)])
    op.trace.grids.append(Grid(labels, tuple(known[(dim,)] for dim in support)))
    inner_dim = next((dim for dim in support if known[(dim,)].inner), support[-1])
    others = [dim for dim in range(labels.ndim) if dim != inner_dim]
    balance(op, labels.permute([*others, inner_dim]), labels.numel() // labels.shape[inner_dim])
    return added


def cut(op: Op, value: Value, dim: int, start: int, stop: int) -> Labellings:
    """Layers of a piece of the value along one dim."""
    dim %= len(value.shape)
    size = stop - start
    whole = value.shape[dim]
    labellings = []
    for labelling in value.labellings:
        if labelling.labels.shape[dim] == 1:
            labellings.append(labelling)
            continue
        if not labelling.slab and whole > size > 0 and whole % size == 0 and start % size == 0:
            _balance_pieces(op, labelling.labels, dim, whole // size)
        piece = labelling.labels.narrow(dim, start, size)
        if size == 1:  # the member is known by its place, and its label ends here
            op.trace.freeze(piece, f"{op.where} takes its members one by one")
        labellings.append(labelling.moved(piece))
    return tidy(labellings)


def _balance_pieces(op: Op, labels: Tensor, dim: int, pieces: int) -> None:
    """Equal pieces of one dim stay equal, for every index of the other dims."""
    if labels.shape[dim] == pieces:
        return
    moved = labels.movedim(dim, -1).reshape(-1, pieces, labels.shape[dim] // pieces)
    for row in moved[:1] if moved.shape[0] == 1 else moved:
        balance(op, row, pieces)


def take(op: Op, value: Value, dim: int, index: int) -> Labellings:
    """Layers of one index of a dim, which is gone then: that index is not to be dropped."""
    dim %= len(value.shape)
    labellings = []
    for labelling in value.labellings:
        if labelling.labels.shape[dim] > 1 and labelling.support == (dim,):
            op.trace.freeze(labelling.labels, f"{op.where} takes its members one by one")
        labels = labelling.labels.narrow(dim, index if labelling.labels.shape[dim] > 1 else 0, 1)
        labellings.append(labelling.moved(labels.squeeze(dim)))
    return tidy(labellings)


def join(op: Op, values: Sequence[Value], dim: int) -> Labellings:
    """Layers of values laid one after the other along a dim; their other dims are combined."""
    dim %= len(values[0].shape)
    sides = [
        replace(value, labellings=_apart(value, dim), shape=_with(value.shape, dim, 1))
        for value in values
    ]
    beside = align(op, *sides).labellings
    joint = _joined(values, dim, slab=False)
    slabs = _joined(values, dim, slab=True) if all(_slabs(v, dim) for v in values) else []
    return tidy([*beside, *joint, *slabs])


def _apart(value: Value, dim: int) -> Labellings:
    return tuple(labelling for labelling in value.labellings if labelling.labels.shape[dim] == 1)


def _slabs(value: Value, dim: int) -> list[Labelling]:
    return [
        labelling
        for labelling in value.labellings
        if labelling.slab and labelling.labels.shape[dim] > 1
    ]


def _joined(values: Sequence[Value], dim: int, *, slab: bool) -> list[Labelling]:
    """One layer along `dim`, from each value's own; stretches without labels are fixed."""
    own = [
        next((la for la in v.labellings if la.slab == slab and la.labels.shape[dim] > 1), None)
        for v in values
    ]
    if not any(own):
        return []
    ndim = len(values[0].shape)
    shape = [
        max(labelling.labels.shape[d] if labelling is not None else 1 for labelling in own)
        for d in range(ndim)
    ]
    pieces = []
    for value, labelling in zip(values, own, strict=True):
        size = _with(tuple(shape), dim, value.shape[dim])
        labels = labelling.labels if labelling is not None else torch.full((1,) * ndim, FIXED)
        pieces.append(labels.expand(size))
    inner = slab and all(labelling is not None and labelling.inner for labelling in own)
    return [Labelling(torch.cat(pieces, dim), slab=slab, inner=inner)]


def _with(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim + 1 :])
