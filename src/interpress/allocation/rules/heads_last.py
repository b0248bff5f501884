"""The same fraction of every space, but heads shrink only after half of the other channels.

A layer often has few heads that can be dropped. If it has three, the allocation "constant" goes
from three to two in all layers at once, where dropping a few neurons would have met the budget.
"""

from __future__ import annotations

from collections.abc import Iterator

from interpress.allocation.heads import SPARED
from interpress.allocation.problem import Problem, Widths
from interpress.allocation.registry import PIVOT_RATIOS, allocation, pivot_ratios
from interpress.allocation.rules.constant import at_fraction, fractions


@allocation("heads-last", losses=pivot_ratios, unit=PIVOT_RATIOS, of_heads=True)
def heads_last(problem: Problem) -> Iterator[Widths]:
    """Yield the widths at fractions from one down to zero; heads keep `1 / SPARED` times more."""
    last = None
    for fraction in fractions():
        widths = at_fraction(problem, fraction)
        of_heads = at_fraction(problem, min(1.0, fraction / SPARED))
        widths |= {name: of_heads[name] for name in widths if problem.spaces[name].heads}
        if widths != last:
            yield widths
        last = widths
