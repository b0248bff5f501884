"""Dense layers as regressions: rows of inputs, rows of outputs, and the weights between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from interpress.graph.patterns import arguments_of, family
from interpress.graph.program import Program

CONVOLUTIONS = {"aten.conv1d": 1, "aten.conv2d": 2, "aten.conv3d": 3}


@dataclass(frozen=True)
class DenseLayer:
    """A linear layer or convolution: `outputs = inputs @ W.T + bias`, per group."""

    weight: str
    bias: str | None
    shape: tuple[int, ...]
    """Of the weight: (out, in / groups, *kernel)."""
    groups: int = 1
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()

    @property
    def unknowns(self) -> int:
        """Weights per output."""
        return math.prod(self.shape[1:])

    @property
    def spatial(self) -> bool:
        """Whether it is a convolution."""
        return bool(self.stride)

    def positions(self, operand: Tensor, rows: int, generator: torch.Generator) -> Tensor | None:
        """Output positions (or rows of a linear layer) to look at, so that about `rows` result."""
        if self.spatial:
            places = math.prod(self.spans(operand.shape[2:]))
            wanted = max(1, -(-rows // operand.shape[0]))
        else:
            places = operand.numel() // operand.shape[-1]
            wanted = rows
        return sample_rows(places, wanted, generator)

    def spans(self, sizes: tuple[int, ...]) -> list[int]:
        """How many output positions there are along every spatial dim."""
        described = zip(
            sizes, self.padding, self.dilation, self.shape[2:], self.stride, strict=True
        )
        return [
            (size + 2 * pad - step * (length - 1) - 1) // stride + 1
            for size, pad, step, length, stride in described
        ]

    def outputs(self, target: Tensor, at: Tensor | None) -> Tensor:
        """(rows, out)."""
        if self.spatial:
            flat = target.flatten(2).mT  # (batch, positions, out)
            flat = flat if at is None else flat[:, at.to(target.device)]
            return flat.reshape(-1, target.shape[1])
        flat = target.reshape(-1, target.shape[-1])
        return flat if at is None else flat[at.to(target.device)]

    def inputs(self, operand: Tensor, at: Tensor | None) -> Tensor:
        """(rows, groups, unknowns)."""
        if not self.spatial:
            flat = operand.reshape(-1, 1, operand.shape[-1])
            return flat if at is None else flat[at.to(operand.device)]
        sizes, kernel = operand.shape[2:], self.shape[2:]
        spans = self.spans(sizes)
        if at is None:
            at = torch.arange(math.prod(spans))
        where = _coordinates(at, spans)
        taps = _coordinates(torch.arange(math.prod(kernel)), kernel)
        flat = torch.zeros(len(at), len(taps[0]), dtype=torch.long)
        inside = torch.ones_like(flat, dtype=torch.bool)
        for axis, size in enumerate(sizes):
            first = where[axis][:, None] * self.stride[axis] - self.padding[axis]
            place = first + taps[axis][None, :] * self.dilation[axis]
            inside &= (place >= 0) & (place < size)
            flat = flat * size + place.clamp(0, size - 1)
        patches = _gathered(operand, flat.to(operand.device))  # (batch, positions, in, taps)
        if not bool(inside.all()):
            patches.mul_(inside[:, None, :].to(operand))
        groups = operand.shape[1] // self.shape[1]  # fewer than captured where channels left
        return patches.reshape(len(patches) * len(at), groups, -1)


def _gathered(operand: Tensor, flat: Tensor) -> Tensor:
    """Every channel at flat places (positions, taps): (batch, positions, in, taps)."""
    last = operand.movedim(1, -1)
    if last.is_contiguous():  # channels-last: whole channels at a time
        rows = last.flatten(1, -2).index_select(1, flat.reshape(-1))
        return rows.unflatten(1, flat.shape).movedim(-1, 2)
    everywhere = flat.reshape(-1).expand(*operand.shape[:2], -1)
    return operand.flatten(2).gather(2, everywhere).unflatten(2, flat.shape).movedim(1, 2)


def _coordinates(at: Tensor, spans: Sequence[int]) -> list[Tensor]:
    """Per axis, where flat places are; quicker than torch's for so few."""
    found = []
    for span in reversed(spans):
        found.append(at % span)
        at = at // span
    return found[::-1]


def sample_rows(rows: int, limit: int, generator: torch.Generator) -> Tensor | None:
    """`limit` of so many rows, one at random out of each stretch of them; None if all fit."""
    if rows <= limit:
        return None
    offsets = torch.rand(limit, generator=generator, dtype=torch.float64)
    return ((torch.arange(limit) + offsets) * (rows / limit)).long().clamp(max=rows - 1)


def dense_layer_of(
    program: Program, node: fx.Node, parameters: Mapping[str, Tensor]
) -> DenseLayer | None:
    """The dense layer that a node is, if its weight is a parameter and its form is known."""
    if node.op != "call_function":
        return None
    arguments = arguments_of(node)
    weight = program.weight_name(arguments.get("weight"))
    bias = arguments.get("bias")
    bias_name = program.weight_name(bias)
    if weight is None or (bias is not None and bias_name is None):
        return None
    shape = tuple(parameters[weight].shape)
    if family(node) == "aten.linear":
        return DenseLayer(weight, bias_name, shape)
    dims = CONVOLUTIONS.get(family(node))
    if dims is None or isinstance(arguments.get("padding"), str):
        return None

    def each(name: str, default: int) -> tuple[int, ...]:
        given: Any = arguments.get(name, default)
        values = list(given) if isinstance(given, list | tuple) else [given]
        return tuple(values * dims if len(values) == 1 else values)

    return DenseLayer(
        weight, bias_name, shape, arguments.get("groups", 1),
        each("stride", 1), each("padding", 0), each("dilation", 1),
    )  # fmt: skip
