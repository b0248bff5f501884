"""Measure the run time of a smaller network relative to the original."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from interpress.graph.example import Example
from interpress.graph.model_state import evaluation

ROUNDS = 7
"""Measurements of a ratio. It is odd, so that the median is one of them."""
_SECONDS = 0.02  # least time per measurement: shorter ones are dominated by timer noise
_ENOUGH = 2.0  # seconds that a report spends; networks that take longer run a few times
_FEW_ROUNDS, _MANY_ROUNDS = 3, 99
_FEWEST_FOR_QUARTILES = 2


@dataclass(frozen=True)
class RunTimes:
    """Run times of both networks, measured in pairs."""

    seconds: tuple[float, float]
    """Of one run: the median of the original, and that times `ratio` for the smaller network."""
    ratio: float
    """The median of the ratios of the pairs."""
    quartiles: tuple[float, float]
    """The lower and the upper quartile of these ratios: half of the pairs lie between them."""
    rounds: int
    """How many pairs there were."""


def latency_ratio(
    smaller: nn.Module, original: nn.Module, example: Example, *, rounds: int | None = ROUNDS
) -> float:
    """Return the run time of `smaller` over that of `original`: the median over rounds.

    None takes as many rounds as two seconds allow.

    The two networks run in turn on the same batch, so that background load affects both.
    """
    return statistics.median(b / a for a, b in _rounds(smaller, original, example, rounds))


def run_times(smaller: nn.Module, original: nn.Module, example: Example) -> RunTimes:
    """Return the run times of both networks, from as many pairs as two seconds allow.

    The networks run in turn, and each is the first of a pair equally often.
    """
    pairs = _rounds(smaller, original, example, None)
    before = statistics.median(seconds for seconds, _ in pairs)
    ratio, quartiles = median_and_quartiles([b / a for a, b in pairs])
    return RunTimes((before, before * ratio), ratio, quartiles, len(pairs))


def median_and_quartiles(ratios: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Return the median of some ratios, and their lower and upper quartile."""
    if len(ratios) < _FEWEST_FOR_QUARTILES:
        return ratios[0], (ratios[0], ratios[0])
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return median, (low, high)


def _rounds(
    smaller: nn.Module, original: nn.Module, example: Example, rounds: int | None
) -> list[tuple[float, float]]:
    """Return the seconds of both networks per round."""
    with evaluation(smaller), evaluation(original), torch.no_grad():
        once = _seconds(original, example, 1)
        repeats = max(1, round(_SECONDS / max(once, 1e-6)))
        both = once + _seconds(smaller, example, 1)
        if rounds is None:
            affordable = int(_ENOUGH / max(both * repeats, 1e-6))
            rounds = max(_FEW_ROUNDS, min(_MANY_ROUNDS, affordable))
        pairs = []
        for number in range(rounds):
            order = (original, smaller) if number % 2 == 0 else (smaller, original)
            first, second = (_seconds(model, example, repeats) for model in order)
            pairs.append((first, second) if number % 2 == 0 else (second, first))
        return pairs


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
