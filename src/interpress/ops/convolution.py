"""Convolutions of any dimension, transposed, grouped and depthwise."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from interpress.labels.labelling import Labelling, Labellings
from interpress.labels.relations import Operand, align, balance, contract, mix, read, uniform
from interpress.labels.trace import Op, Side, Value
from interpress.ops.pointwise import reshaped
from interpress.ops.registry import Term, flops, rule

_FORWARD = ("aten.conv1d", "aten.conv2d", "aten.conv3d")
_TRANSPOSED = ("aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d")


def _transposed(op: Op) -> bool:
    return bool(op.get("transposed")) or op.family in _TRANSPOSED


@rule(*_FORWARD, *_TRANSPOSED, "aten.convolution")
def convolution(op: Op) -> Labellings:
    """Channels are dim 1 of the input; kernel and space are slid over."""
    x, weight, groups = op["input"], op["weight"], op["groups"]
    if len(x.shape) != len(weight.shape):  # an input without a batch dim
        return _unbatched(op)
    x = replace(x, labellings=uniform(op, x, range(2, len(x.shape))))
    weight = replace(weight, labellings=uniform(op, weight, range(2, len(weight.shape))))
    transposed = _transposed(op)
    if groups == 1:
        space = "abc"[: len(x.shape) - 2]
        kernel = "ABC"[: len(x.shape) - 2]
        letters = ("ZY" if not transposed else "YZ") + kernel
        labellings = contract(
            op,
            Operand("input", _flat(x, 1), "NY" + space, op["input"]),
            Operand("weight", _only(weight, (0, 1)), letters, op["weight"]),
            "NZ" + space,
        )
        width = weight.shape[1 if transposed else 0]
    else:
        labellings, width = _grouped(op, x, weight, groups, transposed)
    return _with_bias(op, labellings, width)


def _flat(value: Value, dim: int) -> Value:
    """The value with its other dims unlabelled, so that only channels are paired."""
    return replace(value, labellings=tuple(la for la in value.labellings if la.support == (dim,)))


def _only(value: Value, dims: tuple[int, ...]) -> Value:
    return replace(
        value, labellings=tuple(la for la in value.labellings if set(la.support) <= set(dims))
    )


def _with_bias(op: Op, labellings: Labellings, width: int) -> Labellings:
    bias = op.get("bias")
    if bias is None:
        return labellings
    ndim = len(op["input"].shape)
    shape = (1, width) + (1,) * (ndim - 2)
    return align(op, Value(shape, labellings), reshaped(bias, shape)).labellings


def _unbatched(op: Op) -> Labellings:
    for value in (op["input"], op["weight"]):
        mix(op, value, range(len(value.shape)), "has an input without a batch dim")
    return ()


def _grouped(
    op: Op, x: Value, weight: Value, groups: int, transposed: bool
) -> tuple[Labellings, int]:
    rows = next((la for la in weight.labellings if la.support == (0,)), None)
    source = next((la for la in x.labellings if la.support == (1,) and not la.slab), None)
    width = weight.shape[1] * groups if transposed else weight.shape[0]
    view = (1, width) + (1,) * (len(x.shape) - 2)
    if rows is None or weight.weight is None:
        mix(op, x, range(len(x.shape)), "has grouped weights that are computed")
        mix(op, weight, range(len(weight.shape)), "has grouped weights that are computed")
        return (), width
    flat = rows.labels.reshape(-1)
    if x.shape[1] == groups:
        return _depthwise(op, source, flat, view, transposed), width
    if source is None:
        mix(op, weight, [0, 1], "reads the model's input in groups")
        return (Labelling(flat.reshape(view)),) if not transposed else (), width
    inside = _inside(op, weight, groups)  # (groups, members): labels of dim 1, apart per group
    channels = source.labels.reshape(groups, -1)
    balance(op, channels, groups)
    near, far = (
        (flat.reshape(groups, -1), inside) if transposed else (inside, flat.reshape(groups, -1))
    )
    reason = f"{op.where} combines it with values that no weight produces"
    op.trace.unite(channels, near, reason)
    balance(op, far, groups)
    op.trace.produced.append(far)
    sides = (
        Side("input", op["input"], (1,), source.labels.reshape(-1), channels),
        Side("weight", op["weight"], (0,) if transposed else (0, 1), near, near),
    )
    read(op, sides)
    return (Labelling(far.reshape(view)),), width


def _inside(op: Op, weight: Value, groups: int) -> Tensor:
    """Dim 1 of a grouped weight means other channels in every group: labels over both dims.

    The parameter's own layer of dim 1, which says otherwise, is replaced by that one.
    """
    assert weight.weight is not None
    stored = op.trace.weights[weight.weight]
    joint = next((la for la in stored.labellings if la.support == (0, 1)), None)
    members, per_group = weight.shape[1], weight.shape[0] // groups
    if joint is not None:
        return joint.labels.reshape(weight.shape[:2])[::per_group]
    labels = op.trace.fresh(groups * members).reshape(groups, members)
    spread = labels.repeat_interleave(per_group, 0)
    labelling = Labelling(spread.reshape(*weight.shape[:2], *(1,) * (len(weight.shape) - 2)))
    others = tuple(la for la in stored.labellings if la.support != (1,))
    stored.labellings = (*others, labelling)
    return labels


def _depthwise(
    op: Op, source: Labelling | None, flat: Tensor, view: tuple[int, ...], transposed: bool
) -> Labellings:
    """Every channel by itself: a carrier, with as many outputs as the multiplier says."""
    width = view[1]
    channels = op["input"].shape[1]
    out = flat if not transposed else flat.repeat_interleave(width // channels)
    if source is None:
        op.trace.freeze(flat, f"{op.where} combines it with values that no weight produces")
    else:
        each = source.labels.reshape(-1).repeat_interleave(width // channels)
        op.trace.unite(each, out, f"{op.where} combines it with values that no weight produces")
    return (Labelling(out.reshape(view)),)


@flops(*_FORWARD, *_TRANSPOSED, "aten.convolution")
def convolution_flops(op: Op) -> list[Term]:
    """Two per position, kernel element and pair of connected channels."""
    x, weight = op["input"], op["weight"]
    slid = x if _transposed(op) else op.outputs[0]
    space = tuple((slid, dim) for dim in range(len(slid.shape)) if dim != 1)
    return [(2, (*space, *((weight, dim) for dim in range(len(weight.shape)))))]
