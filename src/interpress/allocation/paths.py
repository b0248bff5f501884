"""Paths of widths, from the whole network down to the smallest one.

Every allocation is a path. Orders are nested, so following a path is arithmetic, and one path
answers every budget: take the first point within the budget, then widen it again where that helps
most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from interpress.allocation.problem import Problem, Widths
from interpress.errors import ArgumentError
from interpress.tables.text_table import counted

Moves = Callable[[str, int], list[int]]
"""From a space and its width to the smaller widths to consider next."""
Score = Callable[[Widths, str, int, float], float]
"""From widths, a space, its new width and the cost saved to a score; the lowest one is taken."""


def greedy_path(problem: Problem, moves: Moves, score: Score) -> Iterator[Widths]:
    """Yield widths, each time shrinking the space whose best move has the lowest score."""
    widths = problem.full()
    best: dict[str, tuple[float, int]] = {}

    def consider(name: str) -> None:
        best.pop(name, None)
        scored = [
            (score(widths, name, width, saved), width)
            for width in moves(name, widths[name])
            if (saved := problem.meter.saved(widths, name, width)) > 0
        ]
        if scored:
            best[name] = min(scored)

    for name in widths:
        consider(name)
    yield dict(widths)
    while best:
        name = min(best, key=lambda key: (best[key], key))  # ties by name: repeatable
        widths[name] = best[name][1]
        yield dict(widths)
        for neighbour in problem.meter.neighbours(name) & set(widths):
            consider(neighbour)


def fit_budget(problem: Problem, path: Iterator[Widths], budget: float, resource: str) -> Widths:
    """Return the first point of a path within the budget, widened as far as the budget allows."""
    whole = problem.meter.total({})
    last: Widths = {}
    for widths in path:
        last = widths
        if problem.meter.total(widths) <= budget * whole * (1 + 1e-12):
            return _widened(problem, widths, budget * whole)
    smallest = problem.meter.total(last or problem.full()) / whole
    shrinking = sum(len(problem.members.get(name, (name,))) for name in problem.orders)
    others = len(problem.spaces) - shrinking
    counts = (
        f"{counted(shrinking, 'space')} can shrink, "
        f"{others} {'stays' if others == 1 else 'stay'} whole"
    )
    raise ArgumentError(
        f"{resource}={budget:g} cannot be reached: at the smallest widths of this allocation "
        f"{smallest:.3f} of the {resource} remain ({counts}); ask for at least "
        f"{math.ceil(smallest * 1000) / 1000:g}"
    )


def _widened(problem: Problem, widths: Widths, budget: float) -> Widths:
    """Widen spaces while the cost stays within the budget, best loss per cost first."""
    widths = dict(widths)
    spent = problem.meter.total(widths)
    rank = {name: {w: i for i, w in enumerate(sizes)} for name, sizes in problem.allowed.items()}
    while True:
        best: tuple[float, str, int, float] | None = None
        for name, width in widths.items():
            index = rank[name][width]
            if index == 0:
                continue
            wider = problem.allowed[name][index - 1]
            cost = -problem.meter.saved(widths, name, wider)
            if cost <= 0 or spent + cost > budget:
                continue
            losses = problem.losses[name]
            gain = float(losses[width] - losses[wider]) / cost
            if best is None or gain > best[0]:
                best = (gain, name, wider, cost)
        if best is None:
            return widths
        widths[best[1]] = best[2]
        spent += best[3]
