"""Measure the run time of a smaller network relative to the original."""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn

from interpress.graph.example import Example
from interpress.graph.model_state import evaluation

ROUNDS = 7
"""Measurements of a ratio. It is odd, so that the median is one of them."""
_SECONDS = 0.02  # least time per measurement: shorter ones are dominated by timer noise


def latency_ratio(
    smaller: nn.Module, original: nn.Module, example: Example, *, rounds: int = ROUNDS
) -> float:
    """Return the run time of `smaller` over that of `original`: the median over rounds.

    The two networks run in turn on the same batch, so that background load affects both.
    """
    with evaluation(smaller), evaluation(original), torch.no_grad():
        repeats = max(1, round(_SECONDS / max(_seconds(original, example, 1), 1e-6)))
        _seconds(smaller, example, 1)
        ratios = [
            _seconds(smaller, example, repeats) / _seconds(original, example, repeats)
            for _ in range(rounds)
        ]
    return statistics.median(ratios)


def _seconds(model: nn.Module, example: Example, repeats: int) -> float:
    _synchronize(example)
    start = time.perf_counter()
    for _ in range(repeats):
        example.call(model)
    _synchronize(example)
    return time.perf_counter() - start


def _synchronize(example: Example) -> None:
    if any(tensor.is_cuda for tensor in example.tensors()):
        torch.cuda.synchronize()
