"""How many examples a gradient step takes, and how many of them at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from interpress.data.batches import take
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.graph.example import Example

_GIB = 2**30
_ON_CPU = 2 * _GIB
"""Bytes of activations that are held for a gradient on a CPU, if the user does not say."""
_FREE_SHARE = 0.5
"""The share of a GPU's free memory that they may take."""


class BatchSizes(NamedTuple):
    """The examples of a step, the most that are run at once, and whether to recompute."""

    step: int
    at_once: int
    recompute: bool
    """Whether one example alone needs more than there is, so that blocks are computed again."""


def batch_sizes(
    network: nn.Module,
    example: Example,
    positions: int,
    device: torch.device,
    memory: float | None,
) -> BatchSizes:
    """Return how to arrange a step of a network that is ready to train.

    `positions` is the number of decisions per example, and `memory` the GiB of activations that may
    be held. On a CPU the time of a step grows with the batch, so that more and smaller steps get
    further in the same time.
    """
    most, fewest, decisions = (64, 4, 2048) if device.type == "cpu" else (256, 8, 16384)
    step = min(most, max(fewest, decisions // max(1, positions)))
    available = _available(device, memory)
    at_once = int(available // max(1, _held_bytes(network, example)))
    return BatchSizes(step, min(step, max(1, at_once)), at_once < 1)


def decisions_per_example(meaning: OutputMeaning, outputs: list[Tensor]) -> int:
    """Return how many decisions an example has: 1, or one per token or pixel."""
    deciding, rule = meaning.pick(outputs), meaning.rule
    if rule.class_dim is None or not deciding.ndim:
        return 1
    return deciding.numel() // max(1, len(deciding) * deciding.shape[rule.class_dim])


def _held_bytes(network: nn.Module, example: Example) -> int:
    """Return the bytes that a forward of one example holds for its gradient."""
    weights = {tensor.untyped_storage().data_ptr() for tensor in network.parameters()}
    held: dict[int, torch.UntypedStorage] = {}

    def hold(tensor: Tensor) -> None:  # a tensor would refer to the node that holds it: a cycle
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            held[storage.data_ptr()] = storage

    with torch.autograd.graph.saved_tensors_hooks(hold, lambda nothing: nothing):
        kept = take(example, torch.arange(1)).call(network)
    del kept
    return sum(storage.nbytes() for storage in held.values())


def _available(device: torch.device, memory: float | None) -> float:
    if memory is not None:
        return memory * _GIB
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] * _FREE_SHARE
    return _ON_CPU
