"""Faster ways to run some operators on a CPU, to the same values but for rounding.

Convolutions run channels-last where an image has many positions, a batch norm is folded into the
convolution that it alone follows, and a ReLU writes over what nothing else reads. Only for looking
at a network: what it is compared by runs as its author wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, fx

from interpress.graph.dense import DenseLayer, dense_layer_of
from interpress.graph.patterns import batch_norm_after, family
from interpress.graph.program import Program, writes

Call = Callable[..., Any]
_FRESH = {"aten.conv2d", "aten.batch_norm", "aten.add", "aten.add_", "aten.linear"}
"""What makes a tensor of its own, never a view of another."""
_FEW = 16
"""Positions up to which channels-last convolutions are slow: a matrix product over all images, or
the usual layout, is faster."""
_VIEWS = ("aten.view.default", "aten._unsafe_view.default")


def fast_kernels(program: Program, weights: Mapping[str, Tensor]) -> dict[fx.Node, Call]:
    """Per node that has one, a faster call.

    Weights are looked at when their layer runs for the first time, and may change until then.
    """
    if not _allowed(program, weights.values()):
        return {}
    found: dict[fx.Node, Call] = {}
    for node in program.nodes:
        if str(node.target) in _VIEWS:
            found[node] = _reshape  # rows of a channels-last tensor are no view
        elif node.op == "call_function" and family(node) == "aten.relu" and _overwritable(node):
            found[node] = torch.relu_
        elif node.op == "call_function" and family(node) == "aten.conv2d":
            dense = dense_layer_of(program, node, weights)
            if dense is None:
                continue
            found[node] = _Convolution(program, node, dense, weights)
            norm = batch_norm_after(program, node, weights)
            if norm is not None:
                found[norm.node] = _first
    return found


@dataclass(frozen=True, eq=False)
class _Convolution:
    """A convolution with the batch norm that alone follows it."""

    program: Program
    node: fx.Node
    dense: DenseLayer
    weights: Mapping[str, Tensor]

    @cached_property
    def folded(self) -> tuple[Tensor, Tensor | None]:
        """The weight and bias that give what the batch norm makes of the output."""
        dense = self.dense
        weight = self.weights[dense.weight]
        bias = None if dense.bias is None else self.weights[dense.bias]
        norm = batch_norm_after(self.program, self.node, self.weights)
        if norm is None:
            return weight, bias
        scale = norm.scale.reshape(-1, *[1] * (weight.ndim - 1))
        shift = norm.shift if bias is None else norm.shift + norm.scale * bias
        return (weight * scale).to(weight.dtype), shift.to(weight.dtype)

    def __call__(self, operand: Tensor, *_: Any, **__: Any) -> Tensor:
        dense, (weight, bias) = self.dense, self.folded
        groups = operand.shape[-3] // weight.shape[1]  # fewer than captured where channels left
        few = operand.shape[-2] * operand.shape[-1] <= _FEW
        if few and groups == 1 and _is_pointwise(dense):
            rows = operand.movedim(-3, -1)
            return torch.nn.functional.linear(rows, weight[:, :, 0, 0], bias).movedim(-1, -3)
        if operand.ndim == 4:
            layout = torch.channels_last if groups > 1 or not few else torch.contiguous_format
            operand, weight = (t.contiguous(memory_format=layout) for t in (operand, weight))
        return torch.conv2d(
            operand, weight, bias, dense.stride, dense.padding, dense.dilation, groups
        )


def exact_kernels(program: Program) -> dict[fx.Node, Call]:
    """The same for runs in double precision, where torch walks through groups one by one."""
    parameters = program.parameters()
    if any(t.device.type != "cpu" for t in parameters.values()):
        return {}
    found: dict[fx.Node, Call] = {}
    for node in program.nodes:
        dense = dense_layer_of(program, node, parameters)
        alone = dense is not None and dense.groups == dense.shape[0] and dense.shape[1] == 1
        if dense is not None and alone and family(node) == "aten.conv2d":
            found[node] = partial(_depthwise, dense)
    return found


def _depthwise(
    dense: DenseLayer,
    operand: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *_: Any,
    **__: Any,
) -> Tensor:
    """A sum over kernel taps; whole channels at a time."""
    if operand.ndim < 4:
        return _depthwise(dense, operand[None], weight, bias)[0]
    (down, right), (rows, columns) = dense.padding, dense.shape[2:]
    padded = torch.nn.functional.pad(operand, (right, right, down, down))
    height, width = dense.spans(operand.shape[2:])
    total = operand.new_zeros(*operand.shape[:2], height, width)
    for tap in range(rows * columns):
        y, x = (tap // columns) * dense.dilation[0], (tap % columns) * dense.dilation[1]
        (sy, sx) = dense.stride
        part = padded[:, :, y : y + sy * (height - 1) + 1 : sy, x : x + sx * (width - 1) + 1 : sx]
        total.addcmul_(part, weight[:, :, tap // columns, tap % columns].reshape(1, -1, 1, 1))
    return total if bias is None else total + bias.reshape(1, -1, 1, 1)


def _allowed(program: Program, weights: Any) -> bool:
    """Whether values and not their places in memory are all that operators look at."""
    plain = all(
        t.device.type == "cpu" and t.dtype in (torch.float32, torch.float64)
        for t in weights
        if t.is_floating_point()
    )
    if not plain or program.autocasts:
        return False
    return all(
        "as_strided" not in str(node.target) and (not writes(node) or _overwritable(node))
        for node in program.nodes
        if node.op == "call_function"
    )


def _overwritable(node: fx.Node) -> bool:
    """Whether nothing but this node sees the tensor that is its first argument."""
    operand = node.args[0] if node.args else None
    return (
        isinstance(operand, fx.Node)
        and operand.op == "call_function"
        and len(operand.users) == 1
        and family(operand) in _FRESH
    )


def _is_pointwise(dense: DenseLayer) -> bool:
    """Whether every output reads one position, all of them in turn."""
    return set(dense.shape[2:] + dense.stride) == {1} and set(dense.padding) == {0}


def _reshape(value: Tensor, size: Any) -> Tensor:
    return value.reshape(size)


def _first(value: Tensor, *_: Any, **__: Any) -> Tensor:
    return value
