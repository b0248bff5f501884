"""How wide every space becomes: the budget is spent where it costs least.

Every allocation is a *path*: widths from the whole network down to the smallest, each step taken
where (increase of predicted loss) / (cost saved) is lowest. Orders are nested, so a path is
arithmetic and answers every budget; a budget takes the first point below it and fills what is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from interpress.errors import ArgumentError
from interpress.selection.orders import ChannelOrder
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.cost import Meter
from interpress.spaces.spaces import Spaces

Widths = dict[str, int]
_STRIDES = (1, 2, 4, 8)
_GRAIN = 64  # a path takes steps of a 64th of a space


@dataclass(frozen=True)
class WidthLimits:
    """Which widths are allowed."""

    round_to: int = 1
    min_width: int = 1

    def widths(self, space: ChannelSpace) -> list[int]:
        """The widths a space may take, widest first; its own size always among them."""
        unit = math.lcm(space.step, self.round_to)
        smallest = min(max(self.min_width, 1), space.size)
        allowed = [w for w in range(unit, space.size, unit) if w >= smallest]
        return [space.size, *reversed(allowed)]


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything an allocation looks at."""

    spaces: Spaces
    orders: Mapping[str, ChannelOrder]
    losses: Mapping[str, Tensor]
    """Per space, (size + 1,) predicted loss with k units kept; not increasing in k."""
    meter: Meter
    allowed: Mapping[str, list[int]]

    def full(self) -> Widths:
        """No space shrunk."""
        return {name: self.spaces[name].size for name in self.orders}

    def loss(self, widths: Mapping[str, int]) -> float:
        """The predicted loss, summed over spaces."""
        return sum(float(self.losses[name][width]) for name, width in widths.items())


def constant(problem: Problem, fraction: float) -> Widths:
    """Algorithm 1: the same fraction of every space, rounded up to what is allowed."""
    widths = {}
    for name, allowed in problem.allowed.items():
        size = problem.spaces[name].size
        widths[name] = min((w for w in allowed if w >= fraction * size - 1e-9), default=size)
    return widths


def constant_path(problem: Problem) -> Iterator[Widths]:
    """Constant fractions, from one down."""
    last = None
    for step in range(1000, -1, -1):
        widths = constant(problem, step / 1000)
        if widths != last:
            yield widths
        last = widths


def iterative_path(problem: Problem, step: float) -> Iterator[Widths]:
    """Algorithm 2: the layer with the lowest `|r_kk / r_11| / FLOPs` loses `step` of its channels.

    FLOPs are those of the layer and the next one, as they are by then, as in the paper's listing.
    """

    def moves(name: str, width: int) -> list[int]:
        target = width - max(1, round(step * width))
        below = [w for w in problem.allowed[name] if w <= target]
        return below[:1]

    def score(widths: Widths, name: str, new: int, saved: float) -> float:
        return float(problem.orders[name].proxy[new]) / problem.meter.touching(widths, name)

    return _path(problem, moves, score)


def marginal_path(problem: Problem) -> Iterator[Widths]:
    """The step with the least predicted loss per cost saved, single or several at a time."""
    places = {name: {w: i for i, w in enumerate(own)} for name, own in problem.allowed.items()}

    def moves(name: str, width: int) -> list[int]:
        allowed = problem.allowed[name]
        here = places[name][width]
        grain = max(1, len(allowed) // _GRAIN)
        ends = [here + grain * stride for stride in _STRIDES]
        found = [allowed[end] for end in ends if end < len(allowed)]
        return found or allowed[here + 1 :][-1:]

    def score(widths: Widths, name: str, new: int, saved: float) -> float:
        losses = problem.losses[name]
        return float(losses[new] - losses[widths[name]]) / saved

    return _path(problem, moves, score)


def _path(
    problem: Problem,
    moves: Callable[[str, int], list[int]],
    score: Callable[[Widths, str, int, float], float],
) -> Iterator[Widths]:
    widths = problem.full()
    best: dict[str, tuple[float, int]] = {}

    def consider(name: str) -> None:
        best.pop(name, None)
        found = [
            (score(widths, name, new, saved), new)
            for new in moves(name, widths[name])
            if (saved := problem.meter.saved(widths, name, new)) > 0
        ]
        if found:
            best[name] = min(found)

    for name in widths:
        consider(name)
    yield dict(widths)
    while best:
        name = min(best, key=lambda key: (best[key], key))  # the same in every process
        widths[name] = best[name][1]
        yield dict(widths)
        for other in problem.meter.neighbours(name) & set(widths):
            consider(other)


def fit_budget(problem: Problem, path: Iterator[Widths], budget: float, what: str) -> Widths:
    """The first point of a path within the budget, widened while it stays within."""
    whole = problem.meter.total({})
    last: Widths = {}
    for widths in path:
        last = widths
        if problem.meter.total(widths) <= budget * whole * (1 + 1e-12):
            return _filled(problem, widths, budget * whole)
    smallest = problem.meter.total(last or problem.full()) / whole
    raise ArgumentError(
        f"{what}={budget:g} cannot be reached: with every space at its smallest width "
        f"{smallest:.3f} of the {what} remain ({_why(problem)}); ask for at least "
        f"{math.ceil(smallest * 1000) / 1000:g}"
    )


def _why(problem: Problem) -> str:
    frozen = len(problem.spaces.frozen)
    return f"{len(problem.orders)} spaces can shrink, {frozen} are frozen or excluded"


def _filled(problem: Problem, widths: Widths, budget: float) -> Widths:
    """Give back what the last steps took too much, where it helps most."""
    widths = dict(widths)
    spent = problem.meter.total(widths)
    places = {name: {w: i for i, w in enumerate(own)} for name, own in problem.allowed.items()}
    while True:
        best: tuple[float, str, int, float] | None = None
        for name, width in widths.items():
            here = places[name][width]
            if here == 0:
                continue
            wider = problem.allowed[name][here - 1]
            cost = -problem.meter.saved(widths, name, wider)
            if cost <= 0 or spent + cost > budget:
                continue
            losses = problem.losses[name]
            worth = float(losses[width] - losses[wider]) / cost
            if best is None or worth > best[0]:
                best = (worth, name, wider, cost)
        if best is None:
            return widths
        widths[best[1]] = best[2]
        spent += best[3]


def decreasing(losses: Tensor) -> Tensor:
    """The same losses, never rising with more kept."""
    return losses.flip(0).cummax(0).values.flip(0)
