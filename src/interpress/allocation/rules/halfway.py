"""Halfway allocation: between the measured and the constant one.

Predicted losses are uncertain, and the same fraction everywhere is a safe guess. Each space gets
the geometric mean of its two widths at the same cost.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator

from interpress.allocation.problem import Problem, Widths
from interpress.allocation.registry import allocation
from interpress.allocation.rules.constant import constant
from interpress.allocation.rules.measured import MEASURED_ERRORS, measured, measured_losses


@allocation("halfway", losses=measured_losses, measures=True, unit=MEASURED_ERRORS)
def halfway(problem: Problem) -> Iterator[Widths]:
    """Yield, for every point of the measured path, the mean with the constant path."""
    uniform_path = constant(problem)
    uniform = following = next(uniform_path)
    last: tuple[float, Widths] | None = None
    for point in measured(problem):
        cost = problem.meter.total(point)
        while problem.meter.total(following) >= cost:
            uniform = following
            following = next(uniform_path, {})
            if not following:
                following = uniform
                break
        widths = _mean(problem, point, uniform)
        total = problem.meter.total(widths)
        if last is None or (total < last[0] and _narrower(widths, last[1])):
            last = total, widths
            yield dict(widths)
    smallest = {name: allowed[-1] for name, allowed in problem.allowed.items()}
    if last is not None and problem.meter.total(smallest) < last[0]:
        yield smallest


def _mean(problem: Problem, first: Widths, second: Widths) -> Widths:
    """Return the geometric mean of two widths per space, at the nearest allowed width."""
    widths = {}
    for name, allowed in problem.allowed.items():
        mean = math.sqrt(first[name] * second[name])
        narrower = bisect_right(allowed, -mean, key=lambda width: -width)
        nearest = allowed[max(narrower - 1, 0) : narrower + 1]
        widths[name] = min(nearest, key=lambda width: abs(width - mean))
    return widths


def _narrower(widths: Widths, last: Widths) -> bool:
    return all(width <= last[name] for name, width in widths.items())
