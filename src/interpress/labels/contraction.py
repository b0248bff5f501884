"""Sums of products: how `einsum`, matrix products and convolutions pair channels with weights.

`contract` returns the labellings of a product and records what is summed over as a `Read`. A `Read`
later becomes a tap: the channels of one operand are replaced by `Z[:, kept] @ T`, and the other
operand, a weight, absorbs `T`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interpress.labels.labelling import Labelling, Labellings, tidy
from interpress.labels.relations import align, mix, uniform, without
from interpress.labels.trace import Copies, Op, Read, Side, Value


@dataclass(frozen=True)
class Operand:
    """One factor of a product: the argument's name, its value, and one letter per dim."""

    argument: str
    value: Value
    letters: str
    original: Value | None = None
    """The argument itself, if `value` is a repeated or relabelled version of it."""
    copies: Copies | None = None
    """Which channels of `value` are copies of channels of `original`."""

    def over(self, letters: str) -> Value:
        """Return the value with dims `letters`, without labellings that vary along other dims."""
        labellings = [
            replace(labelling, labels=_permuted(labelling.labels, self.letters, letters))
            for labelling in self.value.labellings
            if {self.letters[dim] for dim in labelling.support} <= set(letters)
        ]
        sizes = dict(zip(self.letters, self.value.shape, strict=True))
        return Value(tuple(sizes.get(letter, 1) for letter in letters), tuple(labellings))


def _permuted(labels: Tensor, letters: str, target: str) -> Tensor:
    """Return the labels with dims `target`; dims of `letters` that are not in it have size one."""
    present = [letter for letter in target if letter in letters]
    removed = [letter for letter in letters if letter not in target]
    moved = labels.permute([letters.index(letter) for letter in removed + present])
    moved = moved.reshape(moved.shape[len(removed) :])
    return moved[tuple(slice(None) if letter in letters else None for letter in target)]


def contract(
    op: Op, x: Operand, y: Operand, out: str, *, scaled_by_width: bool = False
) -> Labellings:
    """Return the labellings of `einsum("x.letters,y.letters->out", x, y)`.

    Channels that are summed over are recorded as a `Read`. If `y` is a weight, its output channels
    are recorded as produced.
    """
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
    """Return the labellings of both factors, and those of `first` for dims that both describe."""
    labelled_dims = {dim for labelling in first.channels() for dim in labelling.support}
    slabs = {labelling.support for labelling in first.labellings if labelling.slab}

    def is_new(labelling: Labelling) -> bool:
        if labelling.slab:
            return labelling.support not in slabs
        return not labelled_dims & set(labelling.support)

    return tidy([*first.labellings, *(la for la in second.labellings if is_new(la))])


def _from_weight(value: Value) -> bool:
    """Return whether the value is a weight after operators that only move or rescale it."""
    while value.op is not None and value.op.linear and len(value.op.inputs()) == 1:
        value = value.op.inputs()[0]
    return value.weight is not None


def _settle(op: Op, operand: Operand, shared: str, summed: str, out: str) -> Operand:
    """Return the operand with labels that fit the contraction.

    A dim that is summed but is not shared with the other factor is mixed. Labels of a
    summed dim that also vary along a dim only this factor has are merged along that dim.
    """
    value, letters = operand.value, operand.letters
    unshared = [dim for dim, letter in enumerate(letters) if letter not in shared + out]
    value = replace(value, labellings=without(mix(op, value, unshared), unshared, len(letters)))
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
    """Record a `Read` for every labelling of the first operand that is summed over."""
    letters = batch + summed
    first, second = (operand.over(letters) for operand in operands)
    for labelling in first.channels():
        summed_dims = {dim for dim in labelling.support if dim >= len(batch)}
        if not summed_dims:
            continue
        twin = next((p for p in second.channels() if summed_dims <= set(p.support)), None)
        if twin is None or {dim for dim in twin.support if dim >= len(batch)} != summed_dims:
            reason = f"{op.location} sums over its channels along several dims at once"
            op.trace.freeze(labelling.labels, reason)
            continue
        pair = torch.broadcast_tensors(labelling.labels, twin.labels)
        group_dims = sum(dim < len(batch) for dim in {*labelling.support, *twin.support})
        aligned = _distinct(*(_rows(labels, group_dims) for labels in pair))
        sides = [
            _side(operand, "".join(letters[dim] for dim in summed_labelling.support), rows)
            for operand, summed_labelling, rows in zip(
                operands, (labelling, twin), aligned, strict=True
            )
        ]
        op.trace.reads.append(Read(op, (sides[0], sides[1]), scaled))


def _rows(labels: Tensor, group_dims: int) -> Tensor:
    """Return (blocks, positions): the first `group_dims` dims longer than one become blocks."""
    squeezed = labels.reshape([size for size in labels.shape if size > 1])
    return squeezed.reshape(squeezed.shape[:group_dims].numel(), -1)


def _distinct(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct pairs of rows: a batch that is merged with the heads repeats them."""
    first_index: dict[tuple[int, ...], int] = {}
    for index, row in enumerate(torch.cat([a, b], 1).tolist()):
        first_index.setdefault(tuple(row), index)
    kept = torch.tensor(list(first_index.values()))
    return a[kept], b[kept]


def _side(operand: Operand, letters: str, aligned: Tensor) -> Side:
    """Return the operand's side of a `Read` over the dims named by `letters`."""
    dims = tuple(operand.letters.index(letter) for letter in letters)
    value = operand.original or operand.value
    if operand.copies is not None:
        aligned = operand.copies.originals(aligned)
        dims = tuple(dim for dim in dims if value.shape[dim] > 1)
    support = tuple(sorted(dims))
    labelling = next((la for la in value.channels() if la.support == support), None)
    if labelling is None:  # `_settle` changed the labels, so they are taken from `aligned`
        labels = aligned.reshape(-1)[: operand.value.shape[dims[0]]] if len(dims) == 1 else aligned
        labels = labels.reshape([operand.value.shape[dim] for dim in dims])
    else:
        labels = labelling.labels.permute(
            [*dims, *(d for d in range(labelling.labels.ndim) if d not in dims)]
        )
        labels = labels.reshape([value.shape[dim] for dim in dims])
    return Side(operand.argument, value, dims, labels, aligned)


def read(op: Op, sides: tuple[Side, Side]) -> None:
    """Record a sum over channels that is not an einsum, such as a grouped convolution."""
    op.trace.reads.append(Read(op, sides))
