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
        options = moves(name, widths[name])
        savings = problem.meter.savings(widths, name, options)
        scored = [
            (score(widths, name, width, saved), width)
            for width, saved in zip(options, savings, strict=True)
            if saved > 0
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
    if not shrinking and problem.every_order is not None:
        raise ArgumentError(
            f"{resource}={budget:g} cannot be reached: the config of this model can say no smaller "
            "width, so same_widths leaves all spaces whole; leave it out, and save with "
            "result.save instead of save_pretrained"
        )
    counts = (
        f"{counted(shrinking, 'space')} can shrink, "
        f"{others} {'stays' if others == 1 else 'stay'} whole"
    )
    fixed = [name for name, sizes in problem.allowed.items() if len(sizes) == 1]
    if fixed:
        counts += f"; round_to and min_width leave {len(fixed)} of them as wide as they are"
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
    options: dict[str, tuple[float, int, float]] = {}  # gain, wider width, cost

    def consider(name: str) -> None:
        options.pop(name, None)
        index = rank[name][widths[name]]
        if index == 0:
            return
        wider = problem.allowed[name][index - 1]
        cost = -problem.meter.saved(widths, name, wider)
        if cost > 0:
            losses = problem.losses[name]
            options[name] = float(losses[widths[name]] - losses[wider]) / cost, wider, cost

    for name in widths:
        consider(name)
    while True:
        affordable = [n for n in widths if n in options and spent + options[n][2] <= budget]
        if not affordable:
            return widths
        best = max(affordable, key=lambda name: options[name][0])
        _, widths[best], cost = options[best]
        spent += cost
        for neighbour in problem.meter.neighbours(best) & set(widths):
            consider(neighbour)
