"""The two networks of a distillation: the original, and the smaller one that learns from it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from interpress.data.batches import batch_size, split_batch
from interpress.distillation.memory_format import with_channels_last
from interpress.distillation.output_loss import OutputLoss
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.evaluation.outputs import flatten_output
from interpress.graph.example import Example

_KEPT_BYTES = 2**29
"""Outputs of the original on held-out examples are kept up to this size, and else made again."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Both networks, and how far apart their outputs are.

    Both are in evaluation mode while they train; see `steps.trainable`.
    """

    original: nn.Module
    smaller: nn.Module
    meaning: OutputMeaning
    loss: OutputLoss
    at_once: int
    """Most examples whose activations are held for a gradient."""
    channels_last: bool = False
    """Whether gradients are computed with pictures whose channels lie side by side in memory."""

    def add_gradients(self, example: Example) -> None:
        """Add the gradients of the mean loss of a batch, a few examples at a time."""
        total = batch_size(example)
        if self.channels_last:
            example = example.map(with_channels_last)
        for part in split_batch(example, self.at_once):
            wanted = self.wanted(part)
            with torch.enable_grad(), _half_precision(part):
                outputs = _outputs(self.smaller, replace(part, device=None), self.meaning)
            losses = self.loss(wanted, outputs, part)
            if losses.requires_grad:
                (losses.sum() / total).backward()

    def wanted(self, example: Example) -> list[Tensor]:
        """Return the outputs of the original."""
        with torch.no_grad():
            return _outputs(self.original, example, self.meaning)

    def losses(self, example: Example, wanted: list[Tensor]) -> Tensor:
        """Return the loss of every example."""
        with torch.no_grad():
            outputs = _outputs(self.smaller, replace(example, device=None), self.meaning)
            return self.loss(wanted, outputs, example).cpu()


class HeldOut:
    """The held-out examples, with the original's outputs where these are small."""

    def __init__(self, pair: Pair, examples: list[Example]) -> None:
        self._pair, self._examples = pair, examples
        self._wanted: dict[int, list[Tensor]] = {}
        self._kept = 0

    def losses(self) -> Tensor:
        """Return the loss of every held-out example, for the weights as they are now."""
        parts = [
            self._pair.losses(example, self._outputs(number, example))
            for number, example in enumerate(self._examples)
        ]
        return torch.cat(parts)

    def _outputs(self, number: int, example: Example) -> list[Tensor]:
        if number in self._wanted:
            return self._wanted[number]
        wanted = self._pair.wanted(example)
        self._kept += sum(tensor.nbytes for tensor in wanted)
        if self._kept <= _KEPT_BYTES:
            self._wanted[number] = wanted
        return wanted


def _outputs(network: nn.Module, example: Example, meaning: OutputMeaning) -> list[Tensor]:
    tensors, _ = flatten_output(example.call(network))
    return meaning.layout.aligned(tensors)


@contextlib.contextmanager
def _half_precision(example: Example) -> Iterator[None]:
    """Compute matrix products in bfloat16 on a GPU that has fast ones."""
    device = next((tensor.device for tensor in example.tensors()), torch.device("cpu"))
    fast = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    with torch.autocast("cuda", torch.bfloat16) if fast else contextlib.nullcontext():
        yield
