"""Operators that rename dims and move none of the data between channels."""

from __future__ import annotations

from typing import Any

from interpress.labels.labelling import Labellings, along, tidy
from interpress.labels.movement import view
from interpress.labels.trace import Op, Value
from interpress.ops.registry import rule


def _resolve(sizes: Any, value: Value) -> tuple[int, ...]:
    """Sizes with a -1 worked out."""
    total, known = 1, 1
    for size in value.shape:
        total *= size
    for size in sizes:
        known *= size if size != -1 else 1
    return tuple(total // known if size == -1 else size for size in sizes)


@rule("aten.view", "aten.reshape", "aten._unsafe_view", "aten._reshape_alias", linear=True)
def reshape(op: Op) -> Labellings:
    """Any change of shape that keeps the elements in order."""
    value = op["self"]
    sizes = op.get("size", op.get("shape"))
    if sizes is None:  # view.dtype reads the same bytes as other numbers
        for labelling in value.labellings:
            op.trace.freeze(labelling.labels, f"{op.where} reinterprets its bytes")
        return ()
    return view(op, value, _resolve(sizes, value))


@rule("aten.view_as", "aten.reshape_as", linear=True)
def reshape_as(op: Op) -> Labellings:
    """The shape of another value."""
    return view(op, op["self"], op["other"].shape)


@rule("aten.flatten", linear=True)
def flatten(op: Op) -> Labellings:
    """A run of dims becomes one."""
    value = op["self"]
    ndim = max(len(value.shape), 1)
    first, last = op["start_dim"] % ndim, op["end_dim"] % ndim
    sizes = (*value.shape[:first], -1, *value.shape[last + 1 :])
    return view(op, value, _resolve(sizes, value))


@rule("aten.unflatten", linear=True)
def unflatten(op: Op) -> Labellings:
    """One dim becomes several."""
    value = op["self"]
    dim = op["dim"] % len(value.shape)
    return view(
        op, value, _resolve((*value.shape[:dim], *op["sizes"], *value.shape[dim + 1 :]), value)
    )


@rule("aten.squeeze", linear=True)
def squeeze(op: Op) -> Labellings:
    """Dims of size one vanish."""
    value = op["self"]
    ndim = len(value.shape)
    dim: Any = op.get("dim")
    asked = range(ndim) if dim is None else (dim if isinstance(dim, list | tuple) else [dim])
    gone = {d % ndim for d in asked if value.shape[d] == 1} if ndim else set()
    return view(op, value, [size for d, size in enumerate(value.shape) if d not in gone])


@rule("aten.unsqueeze", linear=True)
def unsqueeze(op: Op) -> Labellings:
    """A dim of size one appears."""
    value = op["self"]
    dim = op["dim"] % (len(value.shape) + 1)
    return view(op, value, (*value.shape[:dim], 1, *value.shape[dim:]))


def _permuted(value: Value, order: list[int]) -> Labellings:
    return tidy(
        [labelling.moved(labelling.labels.permute(order)) for labelling in value.labellings]
    )


@rule("aten.permute", linear=True)
def permute(op: Op) -> Labellings:
    """Dims in another order."""
    return _permuted(op["self"], [d % len(op["self"].shape) for d in op["dims"]])


@rule("aten.transpose", "aten.swapaxes", "aten.swapdims", linear=True)
def transpose(op: Op) -> Labellings:
    """Two dims change places."""
    value = op["self"]
    ndim = len(value.shape)
    first = op.get("dim0", op.get("axis0")) % ndim
    second = op.get("dim1", op.get("axis1")) % ndim
    order = list(range(ndim))
    order[first], order[second] = second, first
    return _permuted(value, order)


@rule("aten.t", "aten.numpy_T", "aten.mT", "aten.matrix_H", "aten.adjoint", "aten.mH", linear=True)
def transposed(op: Op) -> Labellings:
    """The last two dims change places (all of them for `.T`)."""
    value = op.inputs()[0]
    ndim = len(value.shape)
    if ndim < 2:
        return value.labellings
    if op.family == "aten.numpy_T":
        return _permuted(value, list(reversed(range(ndim))))
    return _permuted(value, [*range(ndim - 2), ndim - 1, ndim - 2])


@rule("aten.movedim", "aten.moveaxis", linear=True)
def movedim(op: Op) -> Labellings:
    """Dims moved to other places."""
    value = op["self"]
    ndim = len(value.shape)
    source, target = ([d % ndim for d in _listed(op[name])] for name in ("source", "destination"))
    rest = [d for d in range(ndim) if d not in source]
    placed = dict(zip(target, source, strict=True))
    order = [placed[d] if d in placed else rest.pop(0) for d in range(ndim)]
    return _permuted(value, order)


def _listed(dims: Any) -> list[int]:
    return list(dims) if isinstance(dims, list | tuple) else [dims]


@rule("aten.expand", "aten.expand_as", "aten.broadcast_to", linear=True)
def expand(op: Op) -> Labellings:
    """Dims of size one repeated without copying."""
    value = op["self"]
    ndim = len(op["other"].shape if op.family == "aten.expand_as" else op["size"])
    return tidy([labelling.moved(along(labelling.labels, ndim)) for labelling in value.labellings])
