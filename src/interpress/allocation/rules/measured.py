"""Measured allocation: marginal, with each space's loss scaled to its measured effect."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch import Tensor

from interpress.allocation.effects import Effects
from interpress.allocation.problem import Problem, Widths
from interpress.allocation.registry import CONSUMER_ERRORS, allocation, consumer_errors
from interpress.allocation.rules.marginal import marginal
from interpress.selection.orders import ChannelOrder, Orders

_TRUST = 0.1
"""Exponent of the measured factor: 0 ignores it, 1 trusts it fully. A factor measured on 16
examples is noisy, so it is shrunk towards 1."""


MEASURED_ERRORS = f"{CONSUMER_ERRORS}, each scaled to its effect on the output"
"""What the losses of `measured_losses` are."""


def measured_losses(orders: Orders, effects: Effects | None) -> dict[str, Tensor]:
    """Return the consumers' errors, each scaled to what its space does to the output.

    Errors that are divergences of the output already need no effects.
    """
    curves = consumer_errors(orders)
    if effects is None:
        return curves
    return {
        name: curve * effect_factor(orders[name], effects[name]) for name, curve in curves.items()
    }


@allocation("measured", losses=measured_losses, measures=True, unit=MEASURED_ERRORS)
def measured(problem: Problem) -> Iterator[Widths]:
    """Yield the widths of the marginal path under the scaled losses."""
    return marginal(problem)


def effect_factor(order: ChannelOrder, effect: list[tuple[int, float]]) -> float:
    """Return the ratio of measured effect to predicted error, shrunk towards 1 on a log scale."""
    ratios = [
        math.log(distance / error)
        for distance, error in (
            (distance, order.squared_error(width)) for width, distance in effect
        )
        if distance > 0 and error > 0 and math.isfinite(distance)
    ]
    return math.exp(_TRUST * sum(ratios) / len(ratios)) if ratios else 1.0
