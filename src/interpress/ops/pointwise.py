"""Operators that act on each element alone: activations, sums, products, casts, dropout."""

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
    """All operands share their labels, under broadcasting."""
    return align(op, *op.inputs()).labellings


@rule(
    "aten.clone", "aten.contiguous", "aten.to", "aten._to_copy", "aten.alias", "aten.detach",
    "aten.lift_fresh_copy", "aten.positive", "aten.neg", "aten.type_as",
    linear=True,
)  # fmt: skip
def unchanged(op: Op) -> Labellings:
    """The same values, perhaps elsewhere or in another type."""
    return op.inputs()[0].labellings


@rule("aten.dropout", "aten.feature_dropout", "aten.alpha_dropout", linear=True)
def dropout(op: Op) -> Labellings:
    """Nothing in evaluation mode; a mask per element when it stays on."""
    op.linear = not op["train"]
    return op.inputs()[0].labellings


@rule("aten.mul", "aten.div")
def scale(op: Op) -> Labellings:
    """A product; by a single number it commutes with mixing channels."""
    op.linear = sum(_has_extent(value) for value in op.inputs()) <= 1 and _first_is_tensor(op)
    return align(op, *op.inputs()).labellings


def _has_extent(value: Value) -> bool:
    return any(size > 1 for size in value.shape)


def _first_is_tensor(op: Op) -> bool:
    first: Any = next(iter(op.arguments.values()))
    return isinstance(first, Value) and _has_extent(first)


@rule("aten.prelu")
def prelu(op: Op) -> Labellings:
    """A slope for every channel, which is dim 1."""
    x, slope = op["self"], op["weight"]
    channel_first = (1, *slope.shape) + (1,) * (len(x.shape) - 2)
    return align(op, x, reshaped(slope, channel_first)).labellings


def reshaped(value: Value, shape: tuple[int, ...]) -> Value:
    """A vector of one number per channel, laid along the channel dim."""
    labellings = tuple(
        labelling.moved(labelling.labels.reshape(shape)) for labelling in value.labellings
    )
    return Value(shape, labellings)
