"""Labels of values that are reshaped, cut or joined, shared by the rules of data movement.

Each function returns the labellings of the moved value. It also records what the movement implies
for dropping channels, such as that all heads must keep equally many channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from interpress.labels.copies import with_merged_members
from interpress.labels.labelling import FIXED, Labelling, Labellings, merged_dims, reshape, tidy
from interpress.labels.relations import align, balance
from interpress.labels.trace import Grid, Op, Value


def view(op: Op, value: Value, shape: Sequence[int]) -> Labellings:
    """Return the labellings of the value viewed in another shape.

    A labelling that is split over several dims gets a slab labelling for each of them.
    """
    new_shape = tuple(shape)
    value = with_merged_members(op, value, new_shape)
    _attach_reordered_slabs(op, value, new_shape)
    moved = [la.moved(reshape(la.labels, value.shape, new_shape)) for la in value.labellings]
    channels = [labelling for labelling in moved if not labelling.slab]
    slabs = [labelling for labelling in moved if labelling.slab]
    for labelling in channels:
        if len(labelling.support) > 1:
            slabs += _split(op, labelling, slabs)
    return tidy(channels + slabs)


def _attach_reordered_slabs(op: Op, value: Value, new_shape: tuple[int, ...]) -> None:
    """Allow only whole slabs to be dropped where dims merge in another order than they were split.

    Example: `(heads, dims)` of shape (2, 4), where head 0 drops dim 1 and head 1 drops dim 3.
    Merged in this order, every head is a block of 3 channels, and (2, 3) can be split again. Merged
    as `(dims, heads)`, every dim is a block of 2 heads, so a dim must be dropped in all heads.
    """
    for group in merged_dims(value.shape, new_shape):
        for labelling in value.channels():
            varying = [dim for dim in group if dim in labelling.support]
            for slab in value.labellings:
                if slab.slab and slab.inner and slab.support[0] in varying[:-1]:
                    op.trace.attached.append(slab.labels.reshape(-1))


def _split(op: Op, labelling: Labelling, slabs: list[Labelling]) -> list[Labelling]:
    """Return the missing slab labellings of a labelling that spans several dims.

    Record its grid, and that every block along the inner dim keeps equally many channels.
    """
    support = labelling.support
    labels = labelling.labels
    slab_of = {slab.support[0]: slab for slab in slabs if len(slab.support) == 1}
    if all(dim in slab_of for dim in support):
        return []
    has_inner = any(slab.inner for dim, slab in slab_of.items() if dim in support)
    added = []
    for dim in support:
        if dim not in slab_of:
            size = [1] * labels.ndim
            size[dim] = labels.shape[dim]
            fresh = op.trace.fresh(labels.shape[dim])
            op.trace.slab_ids.append(fresh)
            inner = dim == support[-1] and not has_inner
            slab_of[dim] = Labelling(fresh.reshape(size), slab=True, inner=inner)
            added.append(slab_of[dim])
    op.trace.grids.append(Grid(labels, tuple(slab_of[dim] for dim in support)))
    inner_dim = next((dim for dim in support if slab_of[dim].inner), support[-1])
    block_dims = [dim for dim in range(labels.ndim) if dim != inner_dim]
    blocks = labels.numel() // labels.shape[inner_dim]
    balance(op, labels.permute([*block_dims, inner_dim]), blocks)
    return added


def cut(op: Op, value: Value, dim: int, start: int, stop: int, *, equal: bool = True) -> Labellings:
    """Return the labellings of `value[start:stop]` along one dim.

    If the piece is one of several equal pieces, all of them keep equally many channels. `equal` is
    False if the operator is known to cut other pieces of other sizes.
    """
    dim %= len(value.shape)
    size = stop - start
    full_size = value.shape[dim]
    labellings = []
    for labelling in value.labellings:
        if labelling.labels.shape[dim] == 1:
            labellings.append(labelling)
            continue
        is_equal_piece = full_size > size > 0 and full_size % size == 0 and start % size == 0
        if equal and is_equal_piece and not labelling.slab:
            _balance_pieces(op, labelling.labels, dim, full_size // size)
        piece = labelling.labels.narrow(dim, start, size)
        if size == 1:  # the index has a meaning, and a dim of size one carries no labels
            op.trace.freeze(piece, _single_reason(op))
        labellings.append(labelling.moved(piece))
    return tidy(labellings)


def _single_reason(op: Op) -> str:
    return f"{op.location} takes one of its channels by its index"


def _balance_pieces(op: Op, labels: Tensor, dim: int, pieces: int) -> None:
    """Record that equal pieces of one dim stay equal, for every index of the other dims."""
    if labels.shape[dim] == pieces:
        return
    rows = labels.movedim(dim, -1).reshape(-1, pieces, labels.shape[dim] // pieces)
    for row in rows:
        balance(op, row, pieces)


def take(op: Op, value: Value, dim: int, index: int) -> Labellings:
    """Return the labellings of `value.select(dim, index)`; the labels along `dim` are frozen."""
    dim %= len(value.shape)
    labellings = []
    for labelling in value.labellings:
        if labelling.labels.shape[dim] > 1 and labelling.support == (dim,):
            op.trace.freeze(labelling.labels, _single_reason(op))
        labels = labelling.labels.narrow(dim, index if labelling.labels.shape[dim] > 1 else 0, 1)
        labellings.append(labelling.moved(labels.squeeze(dim)))
    return tidy(labellings)


def interleave(labelling: Labelling, repeats: int, dim: int) -> Labelling:
    """Return the labelling of a value in which every index of `dim` is repeated in a row."""
    times = repeats if labelling.labels.shape[dim] > 1 else 1
    return labelling.moved(labelling.labels.repeat_interleave(times, dim))


def join(op: Op, values: Sequence[Value], dim: int) -> Labellings:
    """Return the labellings of `torch.cat(values, dim)`; along other dims the values are aligned.

    A value without labels along `dim` gets the label `FIXED` there. Two values may hold the same
    channels, as `x` and `x + f(x)` do. Each of them is then a column of its own where it is read.
    """
    dim %= len(values[0].shape)
    without_dim = [
        replace(value, labellings=_constant_along(value, dim), shape=_with(value.shape, dim, 1))
        for value in values
    ]
    along_others = align(op, *without_dim).labellings
    channels = [_without_repeats(op, la, dim) for la in _joined(values, dim, slab=False)]
    has_slabs = all(_along(value, dim, slab=True) is not None for value in values)
    slabs = _joined(values, dim, slab=True) if has_slabs else []
    return tidy([*along_others, *channels, *slabs])


def _constant_along(value: Value, dim: int) -> Labellings:
    return tuple(labelling for labelling in value.labellings if labelling.labels.shape[dim] == 1)


def _along(value: Value, dim: int, *, slab: bool) -> Labelling | None:
    """Return the first labelling, or slab labelling, that varies along `dim`."""
    return next(
        (la for la in value.labellings if la.slab == slab and la.labels.shape[dim] > 1), None
    )


def _joined(values: Sequence[Value], dim: int, *, slab: bool) -> list[Labelling]:
    """Return the values' labellings along `dim` as one, in a list that is empty if none has one."""
    labellings = [_along(value, dim, slab=slab) for value in values]
    if not any(labellings):
        return []
    ndim = len(values[0].shape)
    shape = [
        max(labelling.labels.shape[d] if labelling is not None else 1 for labelling in labellings)
        for d in range(ndim)
    ]
    pieces = []
    for value, labelling in zip(values, labellings, strict=True):
        size = _with(tuple(shape), dim, value.shape[dim])
        labels = labelling.labels if labelling is not None else torch.full((1,) * ndim, FIXED)
        pieces.append(labels.expand(size))
    inner = slab and all(labelling is not None and labelling.inner for labelling in labellings)
    return [Labelling(torch.cat(pieces, dim), slab=slab, inner=inner)]


def _without_repeats(op: Op, labelling: Labelling, dim: int) -> Labelling:
    """Return the labelling with every label once along `dim`, if it varies along `dim` only.

    A label that occurs again is replaced by a fresh label of the same channel.
    """
    flat = labelling.labels.reshape(-1)
    order = flat.argsort(stable=True)
    again = torch.zeros(len(flat), dtype=torch.bool)
    again[order[1:]] = flat[order][1:] == flat[order][:-1]
    again &= flat != FIXED
    if labelling.support != (dim,) or not bool(again.any()):
        return labelling
    fresh = op.trace.fresh(int(again.sum()))
    op.trace.unite(fresh, flat[again], "")
    distinct = flat.clone()
    distinct[again] = fresh
    return replace(labelling, labels=distinct.reshape(labelling.labels.shape))


def _with(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    """Return the shape with another size of one dim."""
    return (*shape[:dim], size, *shape[dim + 1 :])
