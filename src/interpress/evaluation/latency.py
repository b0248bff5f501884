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
_ENOUGH = 5.0  # seconds in the original, after which a report makes no more than a few rounds
_FEW_ROUNDS, _MANY_ROUNDS = 3, 11  # of which the fastest counts: other load only ever adds time


def latency_ratio(
    smaller: nn.Module, original: nn.Module, example: Example, *, rounds: int = ROUNDS
) -> float:
    """Return the run time of `smaller` over that of `original`: the median over rounds.

    The two networks run in turn on the same batch, so that background load affects both.
    """
    return statistics.median(b / a for a, b in _rounds(smaller, original, example, rounds))


def run_times(
    smaller: nn.Module, original: nn.Module, example: Example
) -> tuple[float, float, int]:
    """Return the least seconds of the original and of the smaller network, and the rounds.

    The networks run in turn. Networks that take long get fewer rounds.
    """
    pairs = _rounds(smaller, original, example, None)
    before, after = (min(column) for column in zip(*pairs, strict=True))
    return before, after, len(pairs)


def _rounds(
    smaller: nn.Module, original: nn.Module, example: Example, rounds: int | None
) -> list[tuple[float, float]]:
    """Return the seconds of both networks per round."""
    with evaluation(smaller), evaluation(original), torch.no_grad():
        once = _seconds(original, example, 1)
        repeats = max(1, round(_SECONDS / max(once, 1e-6)))
        _seconds(smaller, example, 1)
        if rounds is None:
            affordable = int(_ENOUGH / max(once, _SECONDS))
            rounds = max(_FEW_ROUNDS, min(_MANY_ROUNDS, affordable))
        return [
            (_seconds(original, example, repeats), _seconds(smaller, example, repeats))
            for _ in range(rounds)
        ]


def _seconds(model: nn.Module, example: Example, repeats: int) -> float:
    """Return the seconds of one run, measured over several."""
    _synchronize(example)
    start = time.perf_counter()
    for _ in range(repeats):
        example.call(model)
    _synchronize(example)
    return (time.perf_counter() - start) / repeats


def _synchronize(example: Example) -> None:
    if any(tensor.is_cuda for tensor in example.tensors()):
        torch.cuda.synchronize()
