"""The predicted trade-off: what is left of a network against what it is predicted to lose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from interpress.allocation import problem as allocate
from interpress.allocation.problem import Problem, WidthLimits, Widths
from interpress.method import Method
from interpress.pipeline.study import Study
from interpress.progress import Bars


@dataclass(frozen=True)
class Point:
    """One point of a trade-off: what is left, and the loss predicted there."""

    flops: float
    params: float
    loss: float
    """Summed over spaces; zero for the whole network. Compare points, not networks."""
    widths: Mapping[str, int]


def path_of(problem: Problem, allocation: str, step: float) -> Iterator[Widths]:
    """The widths an allocation goes through, from the whole network down."""
    if allocation == "constant":
        return allocate.constant_path(problem)
    if allocation == "iterative":
        return allocate.iterative_path(problem, step)
    return allocate.marginal_path(problem)


def trade_off(
    knowledge: Study, method: Method, limits: WidthLimits, points: int, places: Bars
) -> list[Point]:
    """Points from the whole network down to the smallest, evenly along the allocation's path."""
    problem = knowledge.problem(method, "flops", limits, places)
    path = list(path_of(problem, method.allocation, 0.05))
    keep = sorted({round(i * (len(path) - 1) / max(points - 1, 1)) for i in range(points)})
    return [point_at(knowledge, problem, path[i]) for i in keep]


def point_at(knowledge: Study, problem: Problem, widths: Mapping[str, int]) -> Point:
    """What is left at some widths, and what is predicted to be lost."""
    flops, params = (knowledge.spaces.cost.meter(kind) for kind in ("flops", "params"))
    return Point(
        flops.total(widths) / flops.total({}),
        params.total(widths) / params.total({}),
        problem.loss(widths),
        dict(widths),
    )
