"""Marginal allocation: spend the budget where loss per cost saved is lowest."""

from __future__ import annotations

from collections.abc import Iterator

from interpress.allocation.paths import greedy_path
from interpress.allocation.problem import Problem, Widths
from interpress.allocation.registry import allocation

_GRAIN = 64  # one step is a 64th of a space, fine enough for any budget
_STRIDES = (1, 2, 4, 8)  # steps at once, so that a flat part of the loss curve is crossed


@allocation("marginal")
def marginal(problem: Problem) -> Iterator[Widths]:
    """Yield widths, each time taking the step with the least predicted loss per cost saved."""
    rank = {name: {w: i for i, w in enumerate(sizes)} for name, sizes in problem.allowed.items()}

    def moves(name: str, width: int) -> list[int]:
        allowed = problem.allowed[name]
        index = rank[name][width]
        grain = max(1, len(allowed) // _GRAIN)
        ends = [index + grain * stride for stride in _STRIDES]
        within = [allowed[end] for end in ends if end < len(allowed)]
        return within or allowed[index + 1 :][-1:]

    def score(widths: Widths, name: str, width: int, saved: float) -> float:
        losses = problem.losses[name]
        return float(losses[width] - losses[widths[name]]) / saved

    return greedy_path(problem, moves, score)
