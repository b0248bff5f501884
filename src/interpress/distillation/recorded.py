"""Gradients that are recorded as a CUDA graph and replayed.

A step of a small network launches thousands of short kernels, and launching them takes longer than
running them. A CUDA graph launches all of them at once. Nothing is assumed about the networks: what
cannot be recorded (control flow that reads values, random numbers of the CPU) is computed as usual,
and so is what gives other gradients when it is replayed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from interpress.distillation.pair import Pair
from interpress.graph.example import Example

_FIRST = 3
"""Batches of one shape that are computed as usual before they are recorded: libraries choose their
algorithms and allocate memory during the first ones, which a recording does not allow."""
_CHECKED = 2
"""Batches on which replayed gradients are compared with those computed as usual."""
_APART = 0.05
"""How far apart they may be, relative to their norm. Kernels that add in no fixed order differ by
about 1e-3 in bfloat16; a recording that is wrong differs by about 1."""
_MOST = 4
"""Shapes of batches that are recorded; each holds its inputs and gradients."""

_Shapes = tuple[tuple[torch.Size, torch.dtype], ...]


class Gradients:
    """Adds the gradients of a batch to the weights, as `Pair.add_gradients` does."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._weights = [p for p in pair.smaller.parameters() if p.requires_grad]
        self._seen: dict[_Shapes, int] = {}
        self._recordings: dict[_Shapes, _Recording] = {}
        self._records = _on_one_gpu(pair)

    def add(self, example: Example) -> None:
        """Add the gradients of a batch; all gradients are None before."""
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in example.tensors())
        number = self._seen[shapes] = self._seen.get(shapes, 0) + 1
        recording = self._recordings.get(shapes)
        if not self._records or example.device is not None or number <= _FIRST:
            self._pair.add_gradients(example)
        elif recording is not None and number > _FIRST + _CHECKED:
            recording.replay(example)
        elif recording is not None or len(self._recordings) < _MOST:
            self._add_and_check(example, shapes)
        else:
            self._pair.add_gradients(example)

    def _add_and_check(self, example: Example, shapes: _Shapes) -> None:
        """Add gradients as usual, and compare those of a recording with them."""
        self._pair.add_gradients(example)
        usual = [weight.grad for weight in self._weights]
        for weight in self._weights:
            weight.grad = None
        recording = self._recordings.get(shapes)
        try:
            recording = recording or _Recording(self._pair, self._weights, example)
            recording.replay(example)
            agrees = _distance(usual, [weight.grad for weight in self._weights]) <= _APART
        except RuntimeError:  # this code cannot be recorded
            agrees = False
        if recording is None:
            _end_recording()
        elif agrees:
            self._recordings[shapes] = recording
        if not agrees:
            self._records = False
            self._recordings.clear()
        for weight, gradient in zip(self._weights, usual, strict=True):
            weight.grad = gradient


class _Recording:
    """The gradients of batches of one shape, as a CUDA graph."""

    def __init__(self, pair: Pair, weights: Sequence[Tensor], example: Example) -> None:
        self._weights = weights
        self._example = example.map(torch.clone)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            pair.add_gradients(self._example)
        self._gradients = [weight.grad for weight in weights]

    def replay(self, example: Example) -> None:
        """Let the weights have the gradients of a batch, until the next replay."""
        for held, given in zip(_all_tensors(self._example), _all_tensors(example), strict=True):
            held.copy_(given)
        self._graph.replay()
        for weight, gradient in zip(self._weights, self._gradients, strict=True):
            weight.grad = gradient


def _all_tensors(example: Example) -> list[Tensor]:
    return [*example.tensors(), *example.masks]


def _on_one_gpu(pair: Pair) -> bool:
    """Return whether both networks live on one CUDA device."""
    networks: list[nn.Module] = [pair.original, pair.smaller]
    homes = {t.device for n in networks for t in [*n.parameters(), *n.buffers()]}
    return len(homes) == 1 and homes.pop().type == "cuda" and torch.version.hip is None


def _distance(usual: Sequence[Tensor | None], replayed: Sequence[Tensor | None]) -> float:
    """Return the norm of the difference relative to that of the usual gradients."""
    difference = size = 0.0
    for a, b in zip(usual, replayed, strict=True):
        if (a is None) != (b is None):
            return float("inf")
        if a is not None and b is not None:
            difference += float((a.float() - b.float()).square().sum())
            size += float(a.float().square().sum())
    return (difference / size) ** 0.5 if size else difference


def _end_recording() -> None:
    """Bring the random number generator back from a recording that failed.

    It stays in the state of a recording, and random numbers are refused. An empty recording that
    succeeds ends this.
    """
    torch.cuda.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device="cuda")
