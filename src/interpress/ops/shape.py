"""Operators that change the shape or the order of dims, but not the elements."""

from __future__ import annotations

from typing import Any

from interpress.labels.copies import counting, may_be_groups
from interpress.labels.labelling import Labellings, along, tidy
from interpress.labels.movement import view
from interpress.labels.trace import Op, Value
from interpress.ops.registry import rule


def _resolve(sizes: Any, value: Value) -> tuple[int, ...]:
    """Return the sizes with -1 replaced by the size that it stands for."""
    total, known = 1, 1
    for size in value.shape:
        total *= size
    for size in sizes:
        known *= size if size != -1 else 1
    return tuple(total // known if size == -1 else size for size in sizes)


@rule("aten.view", "aten.reshape", "aten._unsafe_view", "aten._reshape_alias", linear=True)
def reshape(op: Op) -> Labellings:
    """Follow a change of shape that keeps the elements in order."""
    value = op["self"]
    sizes = op.get("size", op.get("shape"))
    if sizes is None:  # the overload view.dtype, which reads the bytes as another dtype
        for labelling in value.labellings:
            op.trace.freeze(
                labelling.labels, f"{op.location} reinterprets its bytes as another dtype"
            )
        return ()
    return view(op, value, _resolve(sizes, value))


@rule("aten.view_as", "aten.reshape_as", linear=True)
def reshape_as(op: Op) -> Labellings:
    """Follow a view with the shape of another value."""
    return view(op, op["self"], op["other"].shape)


@rule("aten.flatten", linear=True)
def flatten(op: Op) -> Labellings:
    """Follow consecutive dims that are merged into one."""
    value = op["self"]
    ndim = max(len(value.shape), 1)
    first, last = op["start_dim"] % ndim, op["end_dim"] % ndim
    sizes = (*value.shape[:first], -1, *value.shape[last + 1 :])
    return view(op, value, _resolve(sizes, value))


@rule("aten.unflatten", linear=True)
def unflatten(op: Op) -> Labellings:
    """Follow one dim that is split into several."""
    value = op["self"]
    dim = op["dim"] % len(value.shape)
    return view(
        op, value, _resolve((*value.shape[:dim], *op["sizes"], *value.shape[dim + 1 :]), value)
    )


@rule("aten.squeeze", linear=True)
def squeeze(op: Op) -> Labellings:
    """Follow the removal of dims of size one."""
    value = op["self"]
    ndim = len(value.shape)
    dim: Any = op.get("dim")
    candidates = range(ndim) if dim is None else _listed(dim)
    removed = {d % ndim for d in candidates if value.shape[d] == 1} if ndim else set()
    return view(op, value, [size for d, size in enumerate(value.shape) if d not in removed])


@rule("aten.unsqueeze", linear=True)
def unsqueeze(op: Op) -> Labellings:
    """Follow the insertion of a dim of size one."""
    value = op["self"]
    dim = op["dim"] % (len(value.shape) + 1)
    return view(op, value, (*value.shape[:dim], 1, *value.shape[dim:]))


def _permuted(value: Value, order: list[int]) -> Labellings:
    return tidy(
        [labelling.moved(labelling.labels.permute(order)) for labelling in value.labellings]
    )


@rule("aten.permute", linear=True)
def permute(op: Op) -> Labellings:
    """Follow dims in another order."""
    return _permuted(op["self"], [d % len(op["self"].shape) for d in op["dims"]])


@rule("aten.transpose", "aten.swapaxes", "aten.swapdims", linear=True)
def transpose(op: Op) -> Labellings:
    """Follow two dims that are swapped."""
    value = op["self"]
    ndim = len(value.shape)
    first = op.get("dim0", op.get("axis0")) % ndim
    second = op.get("dim1", op.get("axis1")) % ndim
    order = list(range(ndim))
    order[first], order[second] = second, first
    return _permuted(value, order)


@rule("aten.t", "aten.numpy_T", "aten.mT", "aten.matrix_H", "aten.adjoint", "aten.mH", linear=True)
def transposed(op: Op) -> Labellings:
    """Follow the transpose: the last two dims are swapped (`.T` reverses all dims)."""
    value = op.inputs()[0]
    ndim = len(value.shape)
    if ndim < 2:
        return value.labellings
    if op.family == "aten.numpy_T":
        return _permuted(value, list(reversed(range(ndim))))
    return _permuted(value, [*range(ndim - 2), ndim - 1, ndim - 2])


@rule("aten.movedim", "aten.moveaxis", linear=True)
def movedim(op: Op) -> Labellings:
    """Follow dims that are moved to other positions."""
    value = op["self"]
    ndim = len(value.shape)
    source, target = ([d % ndim for d in _listed(op[name])] for name in ("source", "destination"))
    unmoved = [d for d in range(ndim) if d not in source]
    source_of = dict(zip(target, source, strict=True))
    order = [source_of[d] if d in source_of else unmoved.pop(0) for d in range(ndim)]
    return _permuted(value, order)


def _listed(dims: Any) -> list[int]:
    return list(dims) if isinstance(dims, list | tuple) else [dims]


@rule("aten.expand", "aten.expand_as", "aten.broadcast_to", linear=True)
def expand(op: Op) -> Labellings:
    """Follow dims of size one that are repeated without copying.

    A new dim after a dim of heads counts the members of groups: `repeat_kv` of transformers views
    (batch, groups, 1, ...) as (batch, groups, members, ...), and then merges groups and members.
    """
    value = op["self"]
    sizes = op["other"].shape if op.family == "aten.expand_as" else op["size"]
    added = len(sizes) - len(value.shape)
    labellings = [
        labelling.moved(along(labelling.labels, len(sizes))) for labelling in value.labellings
    ]
    for dim, times in enumerate(sizes[added:]):
        is_new = value.shape[dim] == 1 and times > 1 and _is_constant(op, added + dim)
        is_only = dim > 0 and sizes[added + dim - 1] in (-1, value.shape[dim - 1])
        if is_new and is_only and may_be_groups(value, dim - 1):
            labellings.append(counting(op, len(sizes), added + dim, times))
            break
    return tidy(labellings)


def _is_constant(op: Op, dim: int) -> bool:
    """Return whether a size in the arguments is a number, not a size that may vary."""
    sizes = op.node.args[1] if len(op.node.args) > 1 else ()
    return isinstance(sizes, list | tuple) and len(sizes) > dim and isinstance(sizes[dim], int)
