"""Measured time: two networks in turn on the same batch, so that noise hits both."""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn

from interpress.graph.example import Example
from interpress.graph.model_state import evaluation

_ROUNDS = 7
_LEAST = 0.02  # seconds per measurement


def latency_ratio(smaller: nn.Module, original: nn.Module, example: Example) -> float:
    """Time of the smaller network over that of the original: the median over rounds."""
    with evaluation(smaller), evaluation(original), torch.no_grad():
        repeats = max(1, round(_LEAST / max(_seconds(original, example, 1), 1e-6)))
        _seconds(smaller, example, 1)
        ratios = []
        for _ in range(_ROUNDS):
            ratios.append(
                _seconds(smaller, example, repeats) / _seconds(original, example, repeats)
            )
    return statistics.median(ratios)


def _seconds(model: nn.Module, example: Example, repeats: int) -> float:
    _wait(example)
    start = time.perf_counter()
    for _ in range(repeats):
        example.call(model)
    _wait(example)
    return time.perf_counter() - start


def _wait(example: Example) -> None:
    if any(tensor.is_cuda for tensor in example.tensors()):
        torch.cuda.synchronize()
