"""The predicted trade-off between the cost of a network and its loss."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from interpress.allocation.problem import Problem, Widths, spread


@dataclass(frozen=True)
class Point:
    """One point of a trade-off: the cost that remains, and the loss predicted there."""

    flops: float
    params: float
    loss: float
    """Summed over spaces; zero for the whole network. Compare points of one network only."""
    widths: Mapping[str, int] = field(repr=False)
    unit: str = field(default="", repr=False)
    """What the loss is, in words."""


def trade_off(problem: Problem, path: Iterator[Widths], points: int) -> list[Point]:
    """Return points from the whole network down to the smallest, evenly spaced in their cost."""
    steps = list(path)
    costs = [problem.meter.total(widths) for widths in steps]
    apart = (costs[0] - costs[-1]) / max(points - 1, 1)
    wanted = [-(costs[0] - number * apart) for number in range(points - 1)] + [-costs[-1]]
    falling = [-cost for cost in costs]
    indices = {min(bisect_left(falling, cost), len(steps) - 1) for cost in wanted}
    return [point_at(problem, steps[i]) for i in sorted(indices)]


def point_at(problem: Problem, widths: Mapping[str, int]) -> Point:
    """Return the cost that remains at some widths, and the loss predicted there."""
    flops, params = (problem.spaces.cost.meter(kind) for kind in ("flops", "params"))
    every = spread(widths, problem.members)
    return Point(
        flops.total(every) / flops.total({}),
        params.total(every) / params.total({}),
        problem.loss({name: width for name, width in widths.items() if name in problem.losses}),
        every,
        problem.unit,
    )
