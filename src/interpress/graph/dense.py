"""Dense layers as linear regressions: rows of inputs, rows of outputs, weights between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from interpress.graph.patterns import arguments_of
from interpress.graph.program import Program, captured_name, family
from interpress.graph.rows import BatchRows

CONVOLUTIONS = {"aten.conv1d": 1, "aten.conv2d": 2, "aten.conv3d": 3}
"""The convolutions that can be a dense layer, and their number of spatial dims."""


@dataclass(frozen=True)
class DenseLayer:
    """A linear layer or convolution: `outputs = inputs @ W.T + bias` in every group.

    For a convolution, a row is one output position of one example.
    """

    weight: str
    bias: str | None
    shape: tuple[int, ...]
    """Shape of the weight: (out, in / groups, *kernel)."""
    groups: int = 1
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    is_transposed: bool = False
    """Whether the weight of a linear layer is stored as (in, out)."""

    def matrix(self, weight: Tensor) -> Tensor:
        """Return a stored weight as (out, unknowns)."""
        return weight.T if self.is_transposed else weight.reshape(len(weight), -1)

    def stored(self, matrix: Tensor) -> Tensor:
        """Return (out, unknowns) in the shape in which the weight is stored."""
        if self.is_transposed:
            return matrix.T
        return matrix.reshape(len(matrix), *self.shape[1:])

    @property
    def unknowns(self) -> int:
        """Number of weights per output channel."""
        return math.prod(self.shape[1:])

    @property
    def spatial(self) -> bool:
        """Whether the layer is a convolution."""
        return bool(self.stride)

    def positions(self, operand: Tensor, per_example: int, batch: BatchRows) -> Tensor | None:
        """Sample at most `per_example` rows of every example; None means all.

        For a convolution these are output positions, the same for all examples of a batch. For a
        linear layer they are rows of the batch.
        """
        if not self.spatial:
            return batch.sample(operand.numel() // operand.shape[-1], per_example)
        return self._spatial_positions(self.output_sizes(operand.shape[2:]), per_example, batch)

    def output_positions(self, output: Tensor, per_example: int, batch: BatchRows) -> Tensor | None:
        """Return the same positions as `positions`, from the output instead of the operand."""
        if not self.spatial:
            return batch.sample(output.numel() // output.shape[-1], per_example)
        return self._spatial_positions(output.shape[2:], per_example, batch)

    def _spatial_positions(
        self, sizes: Sequence[int], per_example: int, batch: BatchRows
    ) -> Tensor | None:
        return BatchRows(1, batch.first, (), batch.seed).sample(math.prod(sizes), per_example)

    def halves(self, operand: Tensor, at: Tensor | None, batch: BatchRows) -> Tensor:
        """Return, per row of `inputs`, whether its example is in the second half."""
        if not self.spatial:
            return batch.halves(operand.numel() // operand.shape[-1], at)
        available = math.prod(self.output_sizes(operand.shape[2:]))
        if at is not None and not batch.alone:  # the same positions of every example
            return batch.halves(len(operand) * len(at), None)
        return batch.halves(len(operand) * available, at)

    def counting(self, operand: Tensor, at: Tensor | None, batch: BatchRows) -> Tensor | None:
        """Return, per row of `inputs`, whether the mask counts it; None if all rows count."""
        if not self.spatial or not batch.masks:  # rows of a linear layer are sampled to count
            return None
        available = math.prod(self.output_sizes(operand.shape[2:]))
        counts = batch.counting(len(operand) * available)
        if counts is None or at is None:
            return counts
        return counts.reshape(len(operand), available)[:, at].reshape(-1)

    def output_sizes(self, sizes: tuple[int, ...]) -> list[int]:
        """Return the number of output positions along each spatial dim."""
        dims = zip(sizes, self.padding, self.dilation, self.shape[2:], self.stride, strict=True)
        return [
            (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for size, padding, dilation, kernel, stride in dims
        ]

    def outputs(self, target: Tensor, at: Tensor | None) -> Tensor:
        """Return the rows of an output, at the sampled positions: (rows, out)."""
        if self.spatial:
            flat = target.flatten(2).mT  # (batch, positions, out)
            flat = flat if at is None else flat[:, at.to(target.device)]
            return flat.reshape(-1, target.shape[1])
        flat = target.reshape(-1, target.shape[-1])
        return flat if at is None else flat[at.to(target.device)]

    def inputs(self, operand: Tensor, at: Tensor | None) -> Tensor:
        """Return the rows of an input, at the sampled positions: (rows, groups, unknowns)."""
        if not self.spatial:
            flat = operand.reshape(-1, 1, operand.shape[-1])
            return flat if at is None else flat[at.to(operand.device)]
        if at is None:
            at = torch.arange(math.prod(self.output_sizes(operand.shape[2:])))
        index, inside = self._patch_index(operand.shape[2:], at)
        # (batch, positions, in, kernel positions)
        patches = _gather_patches(operand, index.to(operand.device))
        if not bool(inside.all()):
            patches.mul_(inside[:, None, :].to(operand))
        # the operand may have fewer groups than the captured layer
        groups = operand.shape[1] // self.shape[1]
        return patches.reshape(len(patches) * len(at), groups, -1)

    def _patch_index(self, sizes: tuple[int, ...], at: Tensor) -> tuple[Tensor, Tensor]:
        """Return flat input indices (positions, kernel positions), and which are not padding."""
        kernel = self.shape[2:]
        output_coordinates = _unravel(at, self.output_sizes(sizes))
        kernel_coordinates = _unravel(torch.arange(math.prod(kernel)), kernel)
        index = torch.zeros(len(at), len(kernel_coordinates[0]), dtype=torch.long)
        inside = torch.ones_like(index, dtype=torch.bool)
        for axis, size in enumerate(sizes):
            first = output_coordinates[axis][:, None] * self.stride[axis] - self.padding[axis]
            coordinate = first + kernel_coordinates[axis][None, :] * self.dilation[axis]
            inside &= (coordinate >= 0) & (coordinate < size)
            index = index * size + coordinate.clamp(0, size - 1)
        return index, inside


def _gather_patches(operand: Tensor, index: Tensor) -> Tensor:
    """Return all channels at flat indices: (batch, positions, in, kernel positions)."""
    channels_last = operand.movedim(1, -1)
    if channels_last.is_contiguous():  # copies all channels of an index at once
        rows = channels_last.flatten(1, -2).index_select(1, index.reshape(-1))
        return rows.unflatten(1, index.shape).movedim(-1, 2)
    expanded = index.reshape(-1).expand(*operand.shape[:2], -1)
    return operand.flatten(2).gather(2, expanded).unflatten(2, index.shape).movedim(1, 2)


def _unravel(flat: Tensor, shape: Sequence[int]) -> list[Tensor]:
    """Return the coordinates of flat indices. Faster than `torch.unravel_index` for few indices."""
    coordinates = []
    for size in reversed(shape):
        coordinates.append(flat % size)
        flat = flat // size
    return coordinates[::-1]


def sample_rows(rows: int, limit: int, generator: torch.Generator) -> Tensor | None:
    """Return `limit` of `rows` row indices, by stratified sampling; None if all rows fit.

    The rows are divided into `limit` intervals of equal length, and one is drawn from each.
    """
    if rows <= limit:
        return None
    offsets = torch.rand(limit, generator=generator, dtype=torch.float64)
    return ((torch.arange(limit) + offsets) * (rows / limit)).long().clamp(max=rows - 1)


def weight_of(program: Program, node: fx.Node) -> tuple[str | None, bool]:
    """Return the name of an operator's weight, and whether the operator reads it transposed."""
    operand = arguments_of(node).get("weight")
    is_linear = node.op == "call_function" and family(node) == "aten.linear"
    if is_linear and isinstance(operand, fx.Node) and operand.op == "call_function":
        is_transposed = family(operand) == "aten.t"
        return (program.weight_name(operand.args[0]), True) if is_transposed else (None, False)
    return program.weight_name(operand), False


def uses_of_weights(program: Program) -> dict[str, int]:
    """Return how many operators read each weight."""
    counts: dict[str, int] = {}
    for node in program.nodes:
        if node.op == "placeholder" and (name := program.weights.get(captured_name(node))):
            counts[name] = counts.get(name, 0) + len(node.users)
    return counts


def transposes_of(program: Program, weight: str) -> list[fx.Node]:
    """Return the nodes that transpose a weight."""
    nodes = [node for node in program.nodes if program.weight_name(node) == weight]
    users = [user for node in nodes for user in node.users if user.op == "call_function"]
    return [user for user in users if family(user) == "aten.t"]


def dense_layer_of(
    program: Program, node: fx.Node, parameters: Mapping[str, Tensor]
) -> DenseLayer | None:
    """Return a node as a dense layer; None if it is another operator or computes its weight."""
    if node.op != "call_function":
        return None
    arguments = arguments_of(node)
    weight, is_transposed = weight_of(program, node)
    bias = arguments.get("bias")
    bias_name = program.weight_name(bias)
    if weight is None or (bias is not None and bias_name is None):
        return None
    shape = tuple(parameters[weight].shape)
    if family(node) == "aten.linear":
        shape = shape[::-1] if is_transposed else shape
        return DenseLayer(weight, bias_name, shape, is_transposed=is_transposed)
    dims = CONVOLUTIONS.get(family(node))
    if dims is None or isinstance(arguments.get("padding"), str):
        return None

    def per_dim(name: str, default: int) -> tuple[int, ...]:
        argument: Any = arguments.get(name, default)
        values = list(argument) if isinstance(argument, list | tuple) else [argument]
        return tuple(values * dims if len(values) == 1 else values)

    return DenseLayer(
        weight, bias_name, shape, arguments.get("groups", 1),
        per_dim("stride", 1), per_dim("padding", 0), per_dim("dilation", 1),
    )  # fmt: skip
