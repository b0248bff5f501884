"""Operators that look along whole dims: sums, means, maxima, softmax, sorting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from interpress.labels.labelling import Labelling, Labellings
from interpress.labels.relations import align, mix, without
from interpress.labels.trace import Op, Value
from interpress.ops.registry import rule


def _dims(op: Op, x: Value) -> list[int]:
    dim: Any = op.get("dim")
    if dim is None or dim == []:
        return list(range(len(x.shape)))
    return [d % len(x.shape) for d in (dim if isinstance(dim, list | tuple) else [dim])]


@rule(
    "aten.sum", "aten.mean", "aten.amax", "aten.amin", "aten.var", "aten.std", "aten.prod",
    "aten.any", "aten.all", "aten.argmax", "aten.argmin", "aten.logsumexp", "aten.norm",
    "aten.linalg_vector_norm", "aten.count_nonzero", "aten.median", "aten.nanmean",
)  # fmt: skip
def reduce(op: Op) -> Labellings:
    """The reduced dims vanish; channels may not lie along them."""
    x = next(iter(op.inputs()))
    dims = _dims(op, x)
    labellings = without(mix(op, x, dims), dims, len(x.shape))
    return labellings if op.get("keepdim") else _dropped(labellings, dims)


@rule("aten.max", "aten.min", "aten.var_mean", "aten.std_mean", "aten.aminmax")
def reduce_to_pair(op: Op) -> Labellings | list[Labellings]:
    """As `reduce`, with values and indices; element-wise where there are two operands."""
    x, *others = op.inputs()
    if others:
        return align(op, x, *others).labellings
    if op.get("dim") is None and op.family in ("aten.max", "aten.min"):
        mix(op, x, range(len(x.shape)))
        return ()
    dims = _dims(op, x)
    labellings = without(mix(op, x, dims), dims, len(x.shape))
    labellings = labellings if op.get("keepdim") else _dropped(labellings, dims)
    return [labellings, labellings]


def _dropped(labellings: Labellings, dims: list[int]) -> Labellings:
    return tuple(replace(labelling, labels=_squeezed(labelling, dims)) for labelling in labellings)


def _squeezed(labelling: Labelling, dims: list[int]) -> Any:
    shape = [size for dim, size in enumerate(labelling.labels.shape) if dim not in dims]
    return labelling.labels.reshape(shape)


@rule(
    "aten.softmax", "aten._softmax", "aten.log_softmax", "aten._log_softmax", "aten.cumsum",
    "aten.cumprod", "aten.logcumsumexp", "aten._safe_softmax", "aten.renorm",
)  # fmt: skip
def along_one_dim(op: Op) -> Labellings:
    """Elements along one dim are mixed, the shape stays."""
    x = op.inputs()[0]
    return mix(op, x, [op["dim"]])


@rule("aten.sort", "aten.topk", "aten.cummax", "aten.cummin")
def rank(op: Op) -> list[Labellings]:
    """Elements along one dim are reordered by value."""
    x, dim = op.inputs()[0], [op["dim"]]
    labellings = without(mix(op, x, dim, "orders its channels by value"), dim, len(x.shape))
    return [labellings, labellings]


@rule("aten.argsort")
def argsort(op: Op) -> Labellings:
    """As `rank`, indices only."""
    return mix(op, op.inputs()[0], [op["dim"]], "orders its channels by value")
