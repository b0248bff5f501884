"""The same fraction of every space, but heads shrink only after half of the other channels.

A model has few heads, and a dropped head changes all positions of a text. With three groups of
heads per layer, the allocation "constant" cannot keep 60 % of them: it drops a third of all heads
at once to save what a few neurons could save.
"""

from __future__ import annotations

from collections.abc import Iterator

from interpress.allocation.problem import Problem, Widths
from interpress.allocation.registry import allocation, pivot_ratios
from interpress.allocation.rules.constant import at_fraction, fractions

_SPARED = 0.5  # spaces of heads are whole while other spaces keep more than this fraction


@allocation("heads-last", losses=pivot_ratios, of_heads=True)
def heads_last(problem: Problem) -> Iterator[Widths]:
    """Yield the widths at fractions from one down to zero; heads keep `1 / _SPARED` times more."""
    last = None
    for fraction in fractions():
        widths = at_fraction(problem, fraction)
        of_heads = at_fraction(problem, min(1.0, fraction / _SPARED))
        widths |= {name: of_heads[name] for name in widths if problem.spaces[name].heads}
        if widths != last:
            yield widths
        last = widths
