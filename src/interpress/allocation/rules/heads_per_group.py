"""The same fraction of every space, where heads that share a key and a value shrink one by one.

The allocation "constant" removes such groups as a whole. Here every group keeps its key and value,
and loses the same fraction of its query heads. Groups have few heads, so that fraction is rounded
to the nearest one instead of up: two of three heads stay with 67 % to 83 % of the other channels.
Whole groups shrink only after half of the other channels.
"""

from __future__ import annotations

from collections.abc import Iterator

from interpress.allocation.heads import SPARED, heads_of_groups, other_heads
from interpress.allocation.problem import Problem, Widths
from interpress.allocation.registry import PIVOT_RATIOS, allocation, pivot_ratios
from interpress.allocation.rules.constant import at_fraction, fractions, rounded_up


@allocation("heads-per-group", losses=pivot_ratios, unit=PIVOT_RATIOS, of_groups=True)
def heads_per_group(problem: Problem) -> Iterator[Widths]:
    """Yield the widths at fractions from one down to zero."""
    in_groups, others = heads_of_groups(problem), other_heads(problem)
    last = None
    for fraction in fractions():
        widths = at_fraction(problem, fraction)
        if in_groups:
            spared = min(1.0, fraction / SPARED)
            widths |= {name: rounded_up(problem, name, spared) for name in others}
            widths |= {name: _nearest(problem, name, fraction) for name in in_groups}
        if widths != last:
            yield widths
        last = widths


def _nearest(problem: Problem, name: str, fraction: float) -> int:
    """Return the allowed width that is nearest to a fraction of a space."""
    wanted = fraction * problem.spaces[name].size
    return min(problem.allowed[name], key=lambda width: (abs(width - wanted), width))
