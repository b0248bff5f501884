"""Iterative ID (the paper's Algorithm 2), from the activations of the original network."""

from __future__ import annotations

from collections.abc import Iterator

from interpress.allocation.paths import greedy_path
from interpress.allocation.problem import Problem, Widths
from interpress.allocation.registry import PIVOT_RATIOS, allocation, pivot_ratios


@allocation("iterative", losses=pivot_ratios, unit=PIVOT_RATIOS)
def iterative(problem: Problem) -> Iterator[Widths]:
    """Cut `problem.step` of the layer with the lowest `|r_kk / r_11| / FLOPs`, again and again.

    FLOPs are the current FLOPs of the layer and of the next one, as in the paper's listing.
    """

    def moves(name: str, width: int) -> list[int]:
        target = width - max(1, round(problem.step * width))
        return [w for w in problem.allowed[name] if w <= target][:1]

    def score(widths: Widths, name: str, width: int, saved: float) -> float:
        return float(problem.orders[name].proxy[width]) / problem.meter.dependent_cost(widths, name)

    return greedy_path(problem, moves, score)
