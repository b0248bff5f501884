"""The relations between labels that operators establish, shared by all rules.

- `align`: values are combined element by element.
- `uniform`: a window slides over some dims, as in a convolution or a pooling.
- `mix`: elements along some dims are mixed together, as in a softmax; these dims freeze.
- `without`: dims disappear, as in a sum.
- `balance`: blocks of a dim keep equally many channels.

Sums of products are in `interpress.labels.contraction`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from interpress.labels.labelling import Labelling, Labellings, along, tidy
from interpress.labels.trace import Op, Value


def align(op: Op, *values: Value) -> Value:
    """Return the element-wise combination of values under broadcasting.

    Labels that meet at the same position become the same channel. A label that meets a dim without
    labels is frozen.
    """
    result = values[0]
    for value in values[1:]:
        result = _align_two(op, result, value)
    return result


def _align_two(op: Op, x: Value, y: Value) -> Value:
    shape = torch.broadcast_shapes(x.shape, y.shape)
    first, second = _with_ndim(x, len(shape)), _with_ndim(y, len(shape))
    for value, other in ((first, second), (second, first)):
        for labelling in value.labellings:
            if labelling.slab:
                _align_slab(op, labelling, value, other)
            else:
                _align_channel(op, labelling, value, other)
    only_in_second = [
        labelling
        for labelling in second.labellings
        if all(first.shape[dim] == 1 for dim in labelling.support)
    ]
    return Value(tuple(shape), tidy([*first.labellings, *only_in_second]))


def _with_ndim(value: Value, ndim: int) -> Value:
    """Return the value with leading dims of size one."""
    labellings = tuple(
        replace(labelling, labels=along(labelling.labels, ndim)) for labelling in value.labellings
    )
    return Value((1,) * (ndim - len(value.shape)) + value.shape, labellings)


def _align_channel(op: Op, labelling: Labelling, value: Value, other: Value) -> None:
    """Unite a channel labelling of `value` with the labels of `other` that it meets."""
    covered = {dim for dim in labelling.support if other.shape[dim] > 1}
    if not covered:
        return
    peers = [peer for peer in other.labellings if covered & set(peer.support)]
    twin = next((p for p in peers if not p.slab and p.support == labelling.support), None)
    reason = unlabelled_reason(op)
    if twin is not None:
        op.trace.unite(labelling.labels, twin.labels, reason)
        return
    other_slab = _slab(other, labelling.support)
    for peer in peers:
        # A channel labelling of `other` that spans the slab's dim is united instead of the slab.
        spanned = any(
            not p.slab and set(peer.support) <= set(p.support) for p in peers if p is not peer
        )
        if peer.slab and spanned:
            continue
        if (slab := _slab(value, peer.support)) is not None:
            op.trace.unite(slab.labels, peer.labels, reason)
        elif other_slab is not None:
            op.trace.unite(labelling.labels, other_slab.labels, reason)
        else:
            op.trace.unite(labelling.labels, peer.labels, reason)
    for dim in covered - {dim for peer in peers for dim in peer.support}:
        op.trace.freeze(_finest(value, labelling, dim).labels, reason)


def _align_slab(op: Op, slab: Labelling, value: Value, other: Value) -> None:
    """Unite a slab labelling of `value` with the labels of `other` along the same dim."""
    if not any(other.shape[dim] > 1 for dim in slab.support):
        return
    reason = unlabelled_reason(op)
    twins = [peer for peer in other.labellings if peer.support == slab.support]
    # A channel labelling of `value` along the same dim is united with the twin by `_align_channel`.
    has_channel_labels = any(la.support == slab.support for la in value.channels())
    twin = next((p for p in twins if p.slab), None) or (
        None if has_channel_labels else next(iter(twins), None)
    )
    if twin is not None:
        op.trace.unite(slab.labels, twin.labels, reason)
        return
    spanned = any(set(slab.support) <= set(labelling.support) for labelling in value.channels())
    met = any(set(slab.support) & set(peer.support) for peer in other.labellings)
    if not spanned and not met:
        op.trace.freeze(slab.labels, reason)


def unlabelled_reason(op: Op) -> str:
    """Return the reason for freezing channels that meet values without labels in `op`."""
    return (
        f"{op.location} combines its channels with values that cannot shrink, because no weight "
        "makes them"
    )


def _slab(value: Value, support: tuple[int, ...]) -> Labelling | None:
    return next((s for s in value.labellings if s.slab and s.support == support), None)


def _finest(value: Value, labelling: Labelling, dim: int) -> Labelling:
    """Return the labelling to freeze so that `dim` keeps its size.

    This is the slab of `dim` if the labelling spans other dims as well.
    """
    return labelling if labelling.support == (dim,) else _slab(value, (dim,)) or labelling


def uniform(op: Op, value: Value, dims: Iterable[int]) -> Labellings:
    """Return the labellings of a value over whose `dims` a window slides.

    A channel must be the same along these dims, so labels that differ along them are united.
    """
    window_dims = {dim % len(value.shape) for dim in dims}
    reason = f"{op.location} slides over its channels together with values that cannot shrink"
    labellings = []
    for labelling in value.labellings:
        labels = labelling.labels
        for dim in window_dims & set(labelling.support):
            if not labelling.slab:
                op.trace.unite(labels, labels.narrow(dim, 0, 1), reason)
            labels = labels.narrow(dim, 0, 1)
        if labels is labelling.labels or not labelling.slab:
            labellings.append(replace(labelling, labels=labels))
    return tidy(labellings)


def mix(op: Op, value: Value, dims: Iterable[int], why: str = "mixes its channels") -> Labellings:
    """Freeze the labels along `dims`, whose elements are mixed together; return all labellings.

    The frozen labels still describe an output of the same shape. Use `without` to remove them if
    the dims disappear. `why` completes the reason: "aten.softmax at head mixes its channels".
    """
    mixed = {dim % len(value.shape) for dim in dims} if value.shape else set()
    for labelling in value.labellings:
        for dim in mixed & set(labelling.support):
            op.trace.freeze(_finest(value, labelling, dim).labels, f"{op.location} {why}")
            for slab in value.labellings:  # the other dims of these channels lose whole slabs only
                if (
                    slab.slab
                    and not labelling.slab
                    and slab.support[0] in set(labelling.support) - mixed
                ):
                    op.trace.attached.append(slab.labels.reshape(-1))
    return value.labellings


def without(labellings: Labellings, dims: Iterable[int], ndim: int) -> Labellings:
    """Return the labellings that do not vary along `dims`, for a value with `ndim` dims."""
    removed = {dim % ndim for dim in dims} if ndim else set()
    spanned = {
        dim for la in labellings if not la.slab and removed & set(la.support) for dim in la.support
    }

    def as_channels(labelling: Labelling) -> Labelling:
        """Turn the inner slab of channels that lost a dim into a labelling of channels."""
        if labelling.slab and labelling.inner and set(labelling.support) <= spanned:
            return replace(labelling, slab=False, inner=False)
        return labelling

    return tuple(as_channels(la) for la in labellings if not removed & set(la.support))


def balance(op: Op, labels: Tensor, blocks: int) -> None:
    """Record that the labels, cut into equal blocks, keep equally many in every block."""
    flat = labels.reshape(-1)
    if blocks > 1 and flat.numel() % blocks == 0 and flat.numel() > blocks:
        op.trace.balanced.append((flat.reshape(blocks, -1), op.location))
