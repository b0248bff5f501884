"""Operators that act on each element separately: activations, sums, products, casts, dropout."""

from __future__ import annotations

from typing import Any

from interpress.labels.labelling import Labellings
from interpress.labels.relations import align
from interpress.labels.trace import Op, Value
from interpress.ops.registry import rule


@rule(
    "pointwise",
    "aten.relu", "aten.relu6", "aten.selu", "aten.elu", "aten.celu", "aten.gelu", "aten.silu",
    "aten.mish", "aten.hardswish", "aten.hardsigmoid", "aten.hardtanh", "aten.leaky_relu",
    "aten.log_sigmoid", "aten.softplus", "aten.softshrink", "aten.hardshrink", "aten.threshold",
    "aten.rrelu", "aten.square", "aten.where", "aten.clamp", "aten.clamp_min", "aten.clamp_max",
    "aten.masked_fill", "aten.nan_to_num", "aten.rsub", "aten.floor_divide", "aten.lerp",
    "aten.addcmul", "aten.addcdiv", "aten.copy", "aten.fill",
    "aten.logical_not", "aten.logical_and", "aten.logical_or", "aten.__and__", "aten.__or__",
    "aten.true_divide", "aten.divide", "aten.multiply", "aten.subtract",
)  # fmt: skip
def pointwise(op: Op) -> Labellings:
    """Align the labels of all operands under broadcasting."""
    return align(op, *op.inputs()).labellings


@rule(
    "aten.clone", "aten.contiguous", "aten.to", "aten._to_copy", "aten.alias", "aten.detach",
    "aten.lift_fresh_copy", "aten.positive", "aten.neg", "aten.type_as",
    linear=True,
)  # fmt: skip
def unchanged(op: Op) -> Labellings:
    """Return the labels of the input, which is copied, cast or negated."""
    return op.inputs()[0].labellings


@rule("aten.dropout", "aten.feature_dropout", "aten.alpha_dropout", linear=True)
def dropout(op: Op) -> Labellings:
    """Return the labels of the input; dropout in training mode is not linear."""
    op.linear = not op["train"]
    return op.inputs()[0].labellings


@rule("aten.mul", "aten.div")
def scale(op: Op) -> Labellings:
    """Align both factors; a product with a single number commutes with mixing channels."""
    op.linear = sum(_has_extent(value) for value in op.inputs()) <= 1 and _first_is_tensor(op)
    return align(op, *op.inputs()).labellings


def _has_extent(value: Value) -> bool:
    """Return whether the value has more than one element."""
    return any(size > 1 for size in value.shape)


def _first_is_tensor(op: Op) -> bool:
    first: Any = next(iter(op.arguments.values()))
    return isinstance(first, Value) and _has_extent(first)


@rule("aten.prelu")
def prelu(op: Op) -> Labellings:
    """Align the slopes with the channels, which are dim 1."""
    x, slope = op["self"], op["weight"]
    channel_first = (1, *slope.shape) + (1,) * (len(x.shape) - 2)
    return align(op, x, reshaped(slope, channel_first)).labellings


def reshaped(value: Value, shape: tuple[int, ...]) -> Value:
    """Return a vector with one number per channel, reshaped to `shape`."""
    labellings = tuple(
        labelling.moved(labelling.labels.reshape(shape)) for labelling in value.labellings
    )
    return Value(shape, labellings)
