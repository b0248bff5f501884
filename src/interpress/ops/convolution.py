"""Convolutions in one to three dimensions: plain, transposed, grouped and depthwise."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from interpress.labels.contraction import Operand, contract, read
from interpress.labels.labelling import Labelling, Labellings
from interpress.labels.relations import align, balance, mix, uniform, unlabelled_reason
from interpress.labels.trace import Op, Side, Value
from interpress.ops.pointwise import reshaped
from interpress.ops.registry import Term, flops, rule

_FORWARD = ("aten.conv1d", "aten.conv2d", "aten.conv3d")
_TRANSPOSED = ("aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d")


def _transposed(op: Op) -> bool:
    return bool(op.get("transposed")) or op.family in _TRANSPOSED


@rule(*_FORWARD, *_TRANSPOSED, "aten.convolution")
def convolution(op: Op) -> Labellings:
    """Follow a convolution: channels are dim 1 of the input, the kernel slides over the rest."""
    x, weight, groups = op["input"], op["weight"], op["groups"]
    if len(x.shape) != len(weight.shape):
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
            Operand("input", _labelled_along(x, {1}), "NY" + space, op["input"]),
            Operand("weight", _labelled_along(weight, {0, 1}), letters, op["weight"]),
            "NZ" + space,
        )
        width = weight.shape[1 if transposed else 0]
    else:
        labellings, width = _grouped(op, x, weight, groups, transposed)
    return _with_bias(op, labellings, width)


def _labelled_along(value: Value, dims: set[int]) -> Value:
    """Return the value without labellings that vary along other dims, so that only `dims` pair."""
    return replace(
        value, labellings=tuple(la for la in value.labellings if set(la.support) <= dims)
    )


def _with_bias(op: Op, labellings: Labellings, width: int) -> Labellings:
    """Return the labellings of the output after the bias, if there is one, is added."""
    bias = op.get("bias")
    if bias is None:
        return labellings
    ndim = len(op["input"].shape)
    shape = (1, width) + (1,) * (ndim - 2)
    return align(op, Value(shape, labellings), reshaped(bias, shape)).labellings


def _unbatched(op: Op) -> Labellings:
    """Freeze a convolution of an input without a batch dim, whose channels are dim 0."""
    for value in (op["input"], op["weight"]):
        mix(
            op,
            value,
            range(len(value.shape)),
            "has an input without a batch dim; add one with unsqueeze(0)",
        )
    return ()


def _grouped(
    op: Op, x: Value, weight: Value, groups: int, transposed: bool
) -> tuple[Labellings, int]:
    """Return the labellings and the number of channels of a grouped convolution's output."""
    rows = next((la for la in weight.labellings if la.support == (0,)), None)
    source = next((la for la in x.labellings if la.support == (1,) and not la.slab), None)
    width = weight.shape[1] * groups if transposed else weight.shape[0]
    out_shape = (1, width) + (1,) * (len(x.shape) - 2)
    if rows is None or weight.weight is None:
        why = "computes its grouped weight; use a parameter"
        mix(op, x, range(len(x.shape)), why)
        mix(op, weight, range(len(weight.shape)), why)
        return (), width
    row_labels = rows.labels.reshape(-1)
    if x.shape[1] == groups:
        return _depthwise(op, source, row_labels, out_shape, transposed), width
    if source is None:
        mix(op, weight, [0, 1], "convolves an input that cannot shrink in groups")
        return (Labelling(row_labels.reshape(out_shape)),) if not transposed else (), width
    per_group = _labels_per_group(op, weight, groups)  # (groups, weight.shape[1])
    channels = source.labels.reshape(groups, -1)  # (groups, channels of the input per group)
    balance(op, channels, groups)
    row_blocks = row_labels.reshape(groups, -1)
    summed, made = (row_blocks, per_group) if transposed else (per_group, row_blocks)
    op.trace.unite(channels, summed, unlabelled_reason(op))
    balance(op, made, groups)
    op.trace.produced.append(made)
    sides = (
        Side("input", op["input"], (1,), source.labels.reshape(-1), channels),
        Side("weight", op["weight"], (0,) if transposed else (0, 1), summed, summed),
    )
    read(op, sides)
    return (Labelling(made.reshape(out_shape)),), width


def _labels_per_group(op: Op, weight: Value, groups: int) -> Tensor:
    """Return (groups, members): the labels of dim 1 of a grouped weight in every group.

    Dim 1 stands for different channels in every group, so its labels vary along dim 0 as well. They
    replace the parameter's labelling of dim 1 alone.
    """
    assert weight.weight is not None
    stored = op.trace.weights[weight.weight]
    joint = next((la for la in stored.labellings if la.support == (0, 1)), None)
    members, rows_per_group = weight.shape[1], weight.shape[0] // groups
    if joint is not None:
        return joint.labels.reshape(weight.shape[:2])[::rows_per_group]
    labels = op.trace.fresh(groups * members).reshape(groups, members)
    by_row = labels.repeat_interleave(rows_per_group, 0)  # (weight.shape[0], members)
    labelling = Labelling(by_row.reshape(*weight.shape[:2], *(1,) * (len(weight.shape) - 2)))
    unchanged = tuple(la for la in stored.labellings if la.support != (1,))
    stored.labellings = (*unchanged, labelling)
    return labels


def _depthwise(
    op: Op,
    source: Labelling | None,
    row_labels: Tensor,
    out_shape: tuple[int, ...],
    transposed: bool,
) -> Labellings:
    """Return the labellings of a depthwise convolution, which carries every channel.

    Every input channel has `multiplier` output channels.
    """
    multiplier = out_shape[1] // op["input"].shape[1]
    out = row_labels if not transposed else row_labels.repeat_interleave(multiplier)
    reason = unlabelled_reason(op)
    if source is None:
        op.trace.freeze(row_labels, reason)
    else:
        op.trace.unite(source.labels.reshape(-1).repeat_interleave(multiplier), out, reason)
    return (Labelling(out.reshape(out_shape)),)


@flops(*_FORWARD, *_TRANSPOSED, "aten.convolution")
def convolution_flops(op: Op) -> list[Term]:
    """Count two per kernel application, kernel position and pair of connected channels."""
    x, weight = op["input"], op["weight"]
    applied_at = x if _transposed(op) else op.outputs[0]
    space = tuple((applied_at, dim) for dim in range(len(applied_at.shape)) if dim != 1)
    return [(2, (*space, *((weight, dim) for dim in range(len(weight.shape)))))]
