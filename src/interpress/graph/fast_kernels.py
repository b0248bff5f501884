"""Faster implementations of some operators on the CPU, equal up to rounding.

Convolutions run in the channels-last layout on large images. A batch norm is folded into the
convolution before it. A ReLU writes in place if nothing else reads its input. These kernels are
used to measure activations. Networks are compared with the operators their authors wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, fx

from interpress.graph.dense import DenseLayer, dense_layer_of
from interpress.graph.patterns import batch_norm_after
from interpress.graph.program import Program, family, writes

Call = Callable[..., Any]
_NEVER_VIEWS = {"aten.conv2d", "aten.batch_norm", "aten.add", "aten.add_", "aten.linear"}
"""Operators that return new memory, not a view; `_allowed` also checks the operand of `add_`."""
_FEW_POSITIONS = 16
"""Up to this many positions, channels-last convolutions are slower than in the usual layout."""
_FEWEST_POSITIONS = 4
"""Up to this many positions, a 1x1 convolution is slower than one matrix product over all images:
the products of single images are too small."""
_VIEWS = ("aten.view.default", "aten._unsafe_view.default")


def fast_kernels(program: Program, weights: Mapping[str, Tensor]) -> dict[fx.Node, Call]:
    """Return a faster call for each node that has one.

    A kernel reads its weights when it first runs, so `weights` may change until then.
    """
    if not _allowed(program, weights.values()):
        return {}
    kernels: dict[fx.Node, Call] = {}
    for node in program.nodes:
        if str(node.target) in _VIEWS:
            kernels[node] = _reshape  # a channels-last tensor cannot always be viewed
        elif node.op == "call_function" and family(node) == "aten.relu" and _overwritable(node):
            kernels[node] = torch.relu_
        elif node.op == "call_function" and family(node) == "aten.conv2d":
            dense = dense_layer_of(program, node, weights)
            if dense is None:
                continue
            kernels[node] = _Convolution(program, node, dense, weights)
            norm = batch_norm_after(program, node, weights)
            if norm is not None:
                kernels[norm.node] = _return_input
    return kernels


@dataclass(frozen=True, eq=False)
class _Convolution:
    """A convolution, with the batch norm folded in that is its only user."""

    program: Program
    node: fx.Node
    dense: DenseLayer
    weights: Mapping[str, Tensor]

    @cached_property
    def folded(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of the convolution followed by the batch norm."""
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
        # the operand may have fewer groups than the captured layer
        groups = operand.shape[-3] // weight.shape[1]
        positions = operand.shape[-2] * operand.shape[-1]
        is_pointwise = groups == 1 and _is_pointwise(dense)
        if is_pointwise and positions <= _FEWEST_POSITIONS:
            rows = operand.movedim(-3, -1)
            return torch.nn.functional.linear(rows, weight[:, :, 0, 0], bias).movedim(-1, -3)
        if operand.ndim == 4:
            usual = groups == 1 and not is_pointwise and positions <= _FEW_POSITIONS
            layout = torch.contiguous_format if usual else torch.channels_last
            operand, weight = (t.contiguous(memory_format=layout) for t in (operand, weight))
        return torch.conv2d(
            operand, weight, bias, dense.stride, dense.padding, dense.dilation, groups
        )


def exact_kernels(program: Program) -> dict[fx.Node, Call]:
    """Return faster depthwise convolutions for runs in double precision on the CPU.

    In double precision, torch computes the groups of a convolution one after another.
    """
    parameters = program.parameters()
    if program.computes_elsewhere or any(t.device.type != "cpu" for t in parameters.values()):
        return {}
    kernels: dict[fx.Node, Call] = {}
    for node in program.nodes:
        dense = dense_layer_of(program, node, parameters)
        depthwise = dense is not None and dense.groups == dense.shape[0] and dense.shape[1] == 1
        if dense is not None and depthwise and family(node) == "aten.conv2d":
            kernels[node] = partial(_depthwise, dense)
    return kernels


def _depthwise(
    dense: DenseLayer,
    operand: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *_: Any,
    **__: Any,
) -> Tensor:
    """Return a depthwise convolution, as a sum over kernel positions of all channels at once."""
    if operand.ndim < 4:
        return _depthwise(dense, operand[None], weight, bias)[0]
    (pad_y, pad_x), (kernel_y, kernel_x) = dense.padding, dense.shape[2:]
    padded = torch.nn.functional.pad(operand, (pad_x, pad_x, pad_y, pad_y))
    height, width = dense.output_sizes(operand.shape[2:])
    stride_y, stride_x = dense.stride
    total = operand.new_zeros(*operand.shape[:2], height, width)
    for position in range(kernel_y * kernel_x):
        row, column = position // kernel_x, position % kernel_x
        y, x = row * dense.dilation[0], column * dense.dilation[1]
        window = padded[
            :,
            :,
            y : y + stride_y * (height - 1) + 1 : stride_y,
            x : x + stride_x * (width - 1) + 1 : stride_x,
        ]
        total.addcmul_(window, weight[:, :, row, column].reshape(1, -1, 1, 1))
    return total if bias is None else total + bias.reshape(1, -1, 1, 1)


def _allowed(program: Program, weights: Any) -> bool:
    """Return whether the kernels give the same values, whatever the memory layout.

    Operators that write in place or read strides see the layout. Low precision and autocast
    make rounding depend on how an operator is computed.
    """
    plain = all(
        t.device.type == "cpu" and t.dtype in (torch.float32, torch.float64)
        for t in weights
        if t.is_floating_point()
    )
    if not plain or program.autocasts or program.computes_elsewhere:
        return False
    return all(
        "as_strided" not in str(node.target) and (not writes(node) or _overwritable(node))
        for node in program.nodes
        if node.op == "call_function"
    )


def _overwritable(node: fx.Node) -> bool:
    """Return whether only this node can read the memory of its first argument."""
    operand = node.args[0] if node.args else None
    return (
        isinstance(operand, fx.Node)
        and operand.op == "call_function"
        and len(operand.users) == 1
        and family(operand) in _NEVER_VIEWS
    )


def _is_pointwise(dense: DenseLayer) -> bool:
    """Return whether a convolution is a linear layer at every position: 1x1, stride 1."""
    return set(dense.shape[2:] + dense.stride) == {1} and set(dense.padding) == {0}


def _reshape(value: Tensor, size: Any) -> Tensor:
    return value.reshape(size)


def _return_input(value: Tensor, *_: Any, **__: Any) -> Tensor:
    return value
