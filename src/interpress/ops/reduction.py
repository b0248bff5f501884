"""Operators over whole dims: sums, means, maxima, softmax, sorting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from interpress.labels.labelling import Labellings
from interpress.labels.relations import align, mix, without
from interpress.labels.trace import Op, Value
from interpress.ops.registry import rule

_ONE_RESULT_WITHOUT_DIM = ("aten.max", "aten.min", "aten.median", "aten.nanmedian")


def _dims(op: Op, x: Value) -> list[int]:
    """Return the reduced dims; without a `dim` argument, all of them."""
    dim: Any = op.get("dim")
    if dim is None or dim == []:
        return list(range(len(x.shape)))
    return [d % len(x.shape) for d in (dim if isinstance(dim, list | tuple) else [dim])]


@rule(
    "aten.sum", "aten.mean", "aten.amax", "aten.amin", "aten.var", "aten.std", "aten.prod",
    "aten.any", "aten.all", "aten.argmax", "aten.argmin", "aten.logsumexp", "aten.norm",
    "aten.linalg_vector_norm", "aten.count_nonzero", "aten.nanmean",
)  # fmt: skip
def reduce(op: Op) -> Labellings:
    """Freeze channels along the reduced dims, and remove these dims."""
    x = next(iter(op.inputs()))
    return _reduced(op, x)


@rule(
    "aten.max", "aten.min", "aten.median", "aten.nanmedian", "aten.var_mean", "aten.std_mean",
    "aten.aminmax",
)  # fmt: skip
def reduce_to_pair(op: Op) -> Labellings | list[Labellings]:
    """Follow a reduction that returns a pair, or an element-wise maximum of two operands."""
    x, *operands = op.inputs()
    if operands:
        return align(op, x, *operands).labellings
    if op.get("dim") is None and op.family in _ONE_RESULT_WITHOUT_DIM:
        mix(op, x, range(len(x.shape)))
        return ()
    labellings = _reduced(op, x)
    return [labellings, labellings]


def _reduced(op: Op, x: Value) -> Labellings:
    """Return the labellings of `x` after its reduced dims are mixed and removed."""
    dims = _dims(op, x)
    labellings = without(mix(op, x, dims), dims, len(x.shape))
    if op.get("keepdim"):
        return labellings
    return tuple(
        replace(labelling, labels=_squeezed(labelling.labels, dims)) for labelling in labellings
    )


def _squeezed(labels: Tensor, dims: list[int]) -> Tensor:
    return labels.reshape([size for dim, size in enumerate(labels.shape) if dim not in dims])


@rule(
    "aten.softmax", "aten._softmax", "aten.log_softmax", "aten._log_softmax", "aten.cumsum",
    "aten.cumprod", "aten.logcumsumexp", "aten._safe_softmax",
)  # fmt: skip
def along_one_dim(op: Op) -> Labellings:
    """Freeze channels along one dim, whose elements are mixed; the shape stays the same."""
    x = op.inputs()[0]
    return mix(op, x, [op["dim"]])


@rule("aten.renorm")
def renorm(op: Op) -> Labellings:
    """Freeze the channels of every dim but one: each slice along `dim` is scaled by its norm."""
    x = op.inputs()[0]
    ndim = len(x.shape)
    return mix(op, x, [dim for dim in range(ndim) if dim != op["dim"] % ndim])


@rule("aten.sort", "aten.topk", "aten.cummax", "aten.cummin")
def rank(op: Op) -> list[Labellings]:
    """Freeze channels along one dim, whose elements are reordered by value."""
    x, dim = op.inputs()[0], [op["dim"]]
    labellings = without(mix(op, x, dim, "sorts its channels by value"), dim, len(x.shape))
    return [labellings, labellings]


@rule("aten.argsort")
def argsort(op: Op) -> Labellings:
    """Freeze channels as in `rank`; only the indices are returned."""
    return mix(op, op.inputs()[0], [op["dim"]], "sorts its channels by value")
