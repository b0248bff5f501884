"""Shifts and flips of inputs, where the original gives almost the same outputs for them.

Nobody says whether an input is an image, a signal or a table. But a network that was trained on
shifted or flipped examples gives nearly the same output for an example and for its shifted or
flipped copy, and a network for which left and right differ does not. So every shift and flip is
tried on held-out examples, and those that change little are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from interpress.data.batches import batch_size, take
from interpress.graph.example import Example

Difference = Callable[[Example, Example], Tensor]
"""From a batch and a changed batch to the loss between the original's outputs, per example."""

_LARGEST_CHANGE = 0.1
"""The largest mean loss of a move that is used. The loss is relative to the variance of the
original's outputs, so that 1 is what predicting the mean gives. Networks that were trained with a
move change by 0.02 to 0.05 (three on CIFAR-10, shifts and flips); others change by 0.2 and more
(shifted digits, pictures upside down)."""
_SHIFT = 8
"""Inputs are shifted by at most one part in so many of their size."""
_TRIED = 256
"""Examples on which a move is tried."""


class Move(NamedTuple):
    """A random change of every example of a batch."""

    name: str
    apply: Callable[[Tensor, torch.Generator], Tensor]


def harmless_moves(
    examples: Sequence[Example], difference: Difference, seed: int = 0
) -> list[Move]:
    """Return the moves that change the outputs of the original little, on some examples.

    A model with several real-valued inputs has none: they may have to move together.
    """
    if not examples:
        return []
    example = take(examples[0], torch.arange(min(_TRIED, batch_size(examples[0]))))
    inputs = moved_inputs(example)
    if len(inputs) != 1:
        return []
    harmless = []
    for move in _possible(inputs[0]):
        generator = torch.Generator().manual_seed(seed)
        changed = with_moves(example, [move], generator)
        if float(difference(example, changed).mean()) <= _LARGEST_CHANGE:
            harmless.append(move)
    return harmless


def with_moves(example: Example, moves: Sequence[Move], generator: torch.Generator) -> Example:
    """Return a batch after random moves of its real-valued input."""
    inputs = moved_inputs(example)
    if not moves or len(inputs) != 1:
        return example
    moved = inputs[0]
    for move in moves:
        moved = move.apply(moved, generator)
    return example.map(lambda tensor: moved if tensor is inputs[0] else tensor)


def moved_inputs(example: Example) -> list[Tensor]:
    """Return the inputs that can move: real-valued, with positions besides examples and channels.

    If some positions count and others do not, none can.
    """
    size = batch_size(example)
    if example.masks:
        return []
    return [
        tensor
        for tensor in example.tensors()
        if tensor.ndim > 2 and len(tensor) == size and tensor.is_floating_point()
    ]


def _possible(x: Tensor) -> list[Move]:
    """Return shifts and flips along every dim that may be one of positions."""
    dims = range(1 if x.ndim == 3 else 2, x.ndim)
    shifts = [Move(f"shifted along dim {d}", partial(_shifted, d)) for d in dims]
    flips = [Move(f"flipped along dim {d}", partial(_flipped, d)) for d in dims]
    large = [move for move, d in zip(shifts, dims, strict=True) if x.shape[d] >= _SHIFT]
    return [*large, *flips]


def _shifted(dim: int, x: Tensor, generator: torch.Generator) -> Tensor:
    """Shift every example by a random number of places; values at the edge are repeated."""
    length = x.shape[dim]
    most = length // _SHIFT
    shifts = torch.randint(-most, most + 1, (len(x), 1), generator=generator)
    places = (torch.arange(length) + shifts).clamp(0, length - 1)  # (examples, length)
    shape = [len(x), *(length if d == dim else 1 for d in range(1, x.ndim))]
    return x.gather(dim, places.reshape(shape).to(x.device).expand(x.shape))


def _flipped(dim: int, x: Tensor, generator: torch.Generator) -> Tensor:
    """Flip about half of the examples."""
    chosen = torch.rand(len(x), generator=generator) < 0.5
    return torch.where(chosen.to(x.device).reshape(-1, *[1] * (x.ndim - 1)), x.flip(dim), x)
