"""The few things operators do to labels, shared by all the rules.

`align` for values combined element by element, `uniform` for dims that are slid over, `mix` for
dims whose elements are mixed together, `contract` for sums of products.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interpress.labels.labelling import Labelling, Labellings, along, tidy
from interpress.labels.trace import Op, Read, Side, Value


def align(op: Op, *values: Value) -> Value:
    """Combine values element by element under broadcasting: their labels become the same."""
    result = values[0]
    for value in values[1:]:
        result = _align_two(op, result, value)
    return result


def _align_two(op: Op, x: Value, y: Value) -> Value:
    shape = torch.broadcast_shapes(x.shape, y.shape)
    a, b = _stretched(x, len(shape)), _stretched(y, len(shape))
    for one, other in ((a, b), (b, a)):
        for labelling in one.labellings:
            if labelling.slab:
                _meet_slab(op, labelling, one, other)
            else:
                _meet_channel(op, labelling, one, other)
    new = [
        labelling
        for labelling in b.labellings
        if all(a.shape[dim] == 1 for dim in labelling.support)
    ]
    return Value(tuple(shape), tidy([*a.labellings, *new]))


def _stretched(value: Value, ndim: int) -> Value:
    labellings = tuple(
        replace(labelling, labels=along(labelling.labels, ndim)) for labelling in value.labellings
    )
    return Value((1,) * (ndim - len(value.shape)) + value.shape, labellings)


def _meet_channel(op: Op, labelling: Labelling, own: Value, other: Value) -> None:
    covered = {dim for dim in labelling.support if other.shape[dim] > 1}
    if not covered:
        return
    peers = [peer for peer in other.labellings if covered & set(peer.support)]
    twin = next((p for p in peers if not p.slab and p.support == labelling.support), None)
    reason = f"{op.where} combines it with values that no weight produces"
    if twin is not None:
        op.trace.unite(labelling.labels, twin.labels, reason)
        return
    as_slab = _slab(other, labelling.support)
    for peer in peers:
        beneath = any(
            not p.slab and set(peer.support) <= set(p.support) for p in peers if p is not peer
        )
        if peer.slab and beneath:
            continue
        if (slab := _slab(own, peer.support)) is not None:
            op.trace.unite(slab.labels, peer.labels, reason)
        elif as_slab is not None:
            op.trace.unite(labelling.labels, as_slab.labels, reason)
        else:
            op.trace.unite(labelling.labels, peer.labels, reason)
    for dim in covered - {dim for peer in peers for dim in peer.support}:
        op.trace.freeze(_finest(own, labelling, dim).labels, reason)


def _meet_slab(op: Op, slab: Labelling, own: Value, other: Value) -> None:
    if not any(other.shape[dim] > 1 for dim in slab.support):
        return
    reason = f"{op.where} combines it with values that no weight produces"
    twins = [peer for peer in other.labellings if peer.support == slab.support]
    shadowed = any(labelling.support == slab.support for labelling in own.channels())
    twin = next((p for p in twins if p.slab), None) or (
        None if shadowed else next(iter(twins), None)
    )
    if twin is not None:
        op.trace.unite(slab.labels, twin.labels, reason)
        return
    spanned = any(set(slab.support) <= set(labelling.support) for labelling in own.channels())
    met = any(set(slab.support) & set(peer.support) for peer in other.labellings)
    if not spanned and not met:
        op.trace.freeze(slab.labels, reason)


def _slab(value: Value, support: tuple[int, ...]) -> Labelling | None:
    return next((s for s in value.labellings if s.slab and s.support == support), None)


def _finest(value: Value, labelling: Labelling, dim: int) -> Labelling:
    """What exactly is held when `dim` is: its slab where the layer spans other dims as well."""
    return labelling if labelling.support == (dim,) else _slab(value, (dim,)) or labelling


def uniform(op: Op, value: Value, dims: Iterable[int]) -> Labellings:
    """Layers of a value whose `dims` are slid over: a channel may not change along them."""
    along_dims = {dim % len(value.shape) for dim in dims}
    labellings = []
    for labelling in value.labellings:
        labels = labelling.labels
        for dim in along_dims & set(labelling.support):
            if not labelling.slab:
                op.trace.unite(labels, labels.narrow(dim, 0, 1), op.where)
            labels = labels.narrow(dim, 0, 1)
        if labels is labelling.labels or not labelling.slab:
            labellings.append(replace(labelling, labels=labels))
    return tidy(labellings)


def mix(op: Op, value: Value, dims: Iterable[int], why: str = "mixes its channels") -> Labellings:
    """Layers of a value whose elements along `dims` are mixed together: those freeze.

    They are still the labels of an output of the same shape, so that what follows is frozen for the
    same reason; `without` takes them away where the dims vanish.
    """
    mixed = {dim % len(value.shape) for dim in dims} if value.shape else set()
    for labelling in value.labellings:
        for dim in mixed & set(labelling.support):
            op.trace.freeze(_finest(value, labelling, dim).labels, f"{op.where} {why}")
            for slab in value.labellings:  # what is beside it can only leave whole
                if (
                    slab.slab
                    and not labelling.slab
                    and slab.support[0] in set(labelling.support) - mixed
                ):
                    op.trace.attached.append(slab.labels.reshape(-1))
    return value.labellings


def without(labellings: Labellings, dims: Iterable[int], ndim: int) -> Labellings:
    """Only the layers that do not vary along `dims`."""
    gone = {dim % ndim for dim in dims} if ndim else set()
    spanning = {
        dim for la in labellings if not la.slab and gone & set(la.support) for dim in la.support
    }
    return tuple(
        replace(
            labelling, slab=False, inner=False
        )  # all that is left of channels that spanned more
        if labelling.slab and labelling.inner and set(labelling.support) <= spanning
        else labelling
        for labelling in labellings
        if not gone & set(labelling.support)
    )


@dataclass(frozen=True)
class Operand:
    """One factor of a product: the argument's name, its value, and a letter for every dim."""

    argument: str
    value: Value
    letters: str
    original: Value | None = None
    """The argument itself, where `value` repeats it."""

    def over(self, letters: str) -> Value:
        """The value as seen along `letters` only, in that order."""
        labellings = [
            replace(labelling, labels=_permuted(labelling.labels, self.letters, letters))
            for labelling in self.value.labellings
            if {self.letters[dim] for dim in labelling.support} <= set(letters)
        ]
        sizes = dict(zip(self.letters, self.value.shape, strict=True))
        return Value(tuple(sizes.get(letter, 1) for letter in letters), tuple(labellings))


def _permuted(labels: Tensor, letters: str, target: str) -> Tensor:
    present = [letter for letter in target if letter in letters]
    gone = [letter for letter in letters if letter not in target]
    moved = labels.permute([letters.index(letter) for letter in gone + present])
    moved = moved.reshape(moved.shape[len(gone) :])
    return moved[tuple(slice(None) if letter in letters else None for letter in target)]


def contract(
    op: Op, x: Operand, y: Operand, out: str, *, scaled_by_width: bool = False
) -> Labellings:
    """Layers of `einsum(x.letters, y.letters -> out)`, and a `Read` for what is summed over."""
    shared = "".join(letter for letter in x.letters if letter in y.letters)
    summed = "".join(letter for letter in shared if letter not in out)
    x, y = _settle(op, x, shared, summed, out), _settle(op, y, shared, summed, out)
    align(op, x.over(shared), y.over(shared))
    batch = "".join(letter for letter in shared if letter in out)
    for value in (x.over(batch), y.over(batch)):
        op.trace.parallel += [labelling.labels for labelling in value.labellings if labelling.slab]
    _record_reads(op, (x, y), batch, summed, scaled_by_width)
    if y.value.weight or (y.value.op and _from_weight(y.value)):
        op.trace.produced += [labelling.labels for labelling in y.over(out).channels()]
    return _merged(x.over(out), y.over(out))


def _merged(first: Value, second: Value) -> Labellings:
    """Layers of both factors; where both describe a dim they have been made the same."""
    named = {dim for labelling in first.channels() for dim in labelling.support}
    slabs = {labelling.support for labelling in first.labellings if labelling.slab}
    rest = [
        labelling
        for labelling in second.labellings
        if (
            labelling.support not in slabs if labelling.slab else not named & set(labelling.support)
        )
    ]
    return tidy([*first.labellings, *rest])


def _from_weight(value: Value) -> bool:
    while value.op is not None and value.op.linear and len(value.op.inputs()) == 1:
        value = value.op.inputs()[0]
    return value.weight is not None


def _settle(op: Op, operand: Operand, shared: str, summed: str, out: str) -> Operand:
    """Labels may not span a summed dim and a free one; a dim only one factor has is mixed."""
    value, letters = operand.value, operand.letters
    lost = [dim for dim, letter in enumerate(letters) if letter not in shared + out]
    value = replace(value, labellings=without(mix(op, value, lost), lost, len(letters)))
    spread = {
        letters[dim]
        for labelling in value.channels()
        if {letters[d] for d in labelling.support} & set(summed)
        for dim in labelling.support
    } - set(shared)
    if not spread:
        return replace(operand, value=value)
    settled = uniform(op, value, [letters.index(letter) for letter in spread])
    return replace(operand, value=replace(value, labellings=settled))


def _record_reads(
    op: Op, operands: tuple[Operand, Operand], batch: str, summed: str, scaled: bool
) -> None:
    letters = batch + summed
    seen = [operand.over(letters) for operand in operands]
    for labelling in seen[0].channels():
        along_sum = {dim for dim in labelling.support if dim >= len(batch)}
        if not along_sum:
            continue
        twin = next((p for p in seen[1].channels() if along_sum <= set(p.support)), None)
        if twin is None or {dim for dim in twin.support if dim >= len(batch)} != along_sum:
            op.trace.freeze(labelling.labels, f"{op.where} reads it along several dims at once")
            continue
        pair = torch.broadcast_tensors(labelling.labels, twin.labels)
        groups = sum(dim < len(batch) for dim in {*labelling.support, *twin.support})
        aligned = _distinct(*(_rows(labels, groups) for labels in pair))
        sides = [
            _side(operand, "".join(letters[dim] for dim in own.support), rows)
            for operand, own, rows in zip(operands, (labelling, twin), aligned, strict=True)
        ]
        op.trace.reads.append(Read(op, (sides[0], sides[1]), scaled))


def _rows(labels: Tensor, groups: int) -> Tensor:
    """(blocks, positions), over the dims along which there is something to tell apart."""
    squeezed = labels.reshape([size for size in labels.shape if size > 1])
    return squeezed.reshape(squeezed.shape[:groups].numel(), -1)


def _distinct(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of rows, each only once: a batch merged with the heads repeats them."""
    first: dict[tuple[int, ...], int] = {}
    for index, row in enumerate(torch.cat([a, b], 1).tolist()):
        first.setdefault(tuple(row), index)
    kept = torch.tensor(list(first.values()))
    return a[kept], b[kept]


def _side(operand: Operand, letters: str, aligned: Tensor) -> Side:
    dims = tuple(operand.letters.index(letter) for letter in letters)
    value = operand.original or operand.value
    support = tuple(sorted(dims))
    labelling = next((own for own in value.channels() if own.support == support), None)
    if labelling is None:  # settled labels: take them as they were aligned
        own = aligned.reshape(-1)[: operand.value.shape[dims[0]]] if len(dims) == 1 else aligned
        own = own.reshape([operand.value.shape[dim] for dim in dims])
    else:
        own = labelling.labels.permute(
            [*dims, *(d for d in range(labelling.labels.ndim) if d not in dims)]
        )
        own = own.reshape([value.shape[dim] for dim in dims])
    return Side(operand.argument, value, dims, own, aligned)


def read(op: Op, sides: tuple[Side, Side]) -> None:
    """Record a sum over channels that is not a plain contraction, such as a grouped convolution."""
    op.trace.reads.append(Read(op, sides))


def balance(op: Op, labels: Tensor, blocks: int) -> None:
    """Cut the labels of one dim into equal blocks, each of which keeps equally many."""
    flat = labels.reshape(-1)
    if blocks > 1 and flat.numel() % blocks == 0 and flat.numel() > blocks:
        op.trace.balanced.append((flat.reshape(blocks, -1), op.where))
