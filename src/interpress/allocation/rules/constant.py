"""Constant fraction (the paper's Algorithm 1): the same fraction of every space."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from interpress.allocation.heads import SPARED, heads_of_groups
from interpress.allocation.problem import Problem, Widths
from interpress.allocation.registry import PIVOT_RATIOS, allocation, pivot_ratios

_STEPS = 1000  # fractions that the path goes through


@allocation("constant", losses=pivot_ratios, unit=PIVOT_RATIOS)
def constant(problem: Problem) -> Iterator[Widths]:
    """Yield the widths at constant fractions, from one down to zero."""
    last = None
    for fraction in fractions():
        widths = at_fraction(problem, fraction)
        if widths != last:
            yield widths
        last = widths


def fractions() -> Iterator[float]:
    """Yield the fractions that the path goes through, from one down to zero."""
    return (step / _STEPS for step in range(_STEPS, -1, -1))


def at_fraction(problem: Problem, fraction: float) -> Widths:
    """Return the same fraction of every space, rounded up to an allowed width.

    The heads within groups shrink only after half of the groups. Otherwise, a layer would keep the
    square of the fraction of its heads.
    """
    spared = heads_of_groups(problem)
    return {
        name: rounded_up(problem, name, min(1.0, fraction / SPARED) if name in spared else fraction)
        for name in problem.allowed
    }


def rounded_up(problem: Problem, name: str, fraction: float) -> int:
    """Return the smallest allowed width that is at least a fraction of a space."""
    allowed = problem.allowed[name]
    least = fraction * problem.spaces[name].size - 1e-9
    wide_enough = bisect_right(allowed, -least, key=lambda width: -width)
    return allowed[max(wide_enough - 1, 0)]
