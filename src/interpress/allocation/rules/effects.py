"""Allocation by effects: like `measured`, but what was measured is trusted fully.

The loss of a space at half of its width is what cutting it there alone did to the outputs. Its
error curve says how this grows and falls with the width. For language models, losses measured on
thousands of tokens are reliable, and errors of layers relative to their own outputs are not: a
layer whose output hardly changes the residual stream may lose all of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from interpress.allocation.effects import Effects
from interpress.allocation.problem import Problem, Widths
from interpress.allocation.registry import allocation, consumer_errors
from interpress.allocation.rules.marginal import marginal
from interpress.allocation.rules.measured import effect_factor
from interpress.selection.orders import Orders


def effect_losses(orders: Orders, effects: Effects | None) -> dict[str, Tensor]:
    """Return the consumers' errors, each scaled to the measured effect of its space."""
    assert effects is not None
    curves = consumer_errors(orders)
    return {
        name: curve * effect_factor(orders[name], effects[name], trust=1.0)
        for name, curve in curves.items()
    }


@allocation("effects", losses=effect_losses, measures=True)
def effects(problem: Problem) -> Iterator[Widths]:
    """Yield the widths of the marginal path under these losses."""
    return marginal(problem)
