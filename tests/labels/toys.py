"""An operator to call label functions with, and values with a fresh labelling for some dims."""

from __future__ import annotations

import torch
from torch import Tensor, fx

from interpress.labels.labelling import Labelling
from interpress.labels.trace import Op, Trace, Value


def an_op() -> Op:
    """An operator with an empty trace; its name is `aten.relu`."""
    return Op(fx.Graph().call_function(torch.ops.aten.relu.default), {}, Trace(None))  # type: ignore[arg-type]


def labelled(op: Op, shape: tuple[int, ...], *dims: int, weight: str | None = None) -> Value:
    """A value with one labelling for each of `dims`."""
    labellings = []
    for dim in dims:
        size = [1] * len(shape)
        size[dim] = shape[dim]
        labellings.append(Labelling(op.trace.fresh(shape[dim]).reshape(size)))
    return Value(shape, tuple(labellings), weight=weight)


def elements(labelling: Labelling, shape: tuple[int, ...]) -> Tensor:
    """The label of every element of a value."""
    return labelling.labels.expand(shape)


def frozen(op: Op) -> set[int]:
    """All frozen labels."""
    return {label for labels, _ in op.trace.frozen for label in labels.tolist()}


def same(op: Op) -> set[tuple[int, int]]:
    """All pairs of labels that were united, the smaller first."""
    return {
        (min(pair), max(pair))
        for a, b in op.trace.united
        for pair in zip(a.tolist(), b.tolist(), strict=True)
    }
