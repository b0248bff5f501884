"""The allocation by effects trusts what was measured."""

from __future__ import annotations

import pytest

from interpress import Method
from interpress.allocation.effects import Effects
from interpress.allocation.registry import consumer_errors
from interpress.allocation.rules.effects import effect_losses
from interpress.selection.orders import Orders


def test_the_loss_at_the_measured_width_is_what_was_measured(
    orders: Orders, effects: Effects
) -> None:
    losses, curves = effect_losses(orders, effects), consumer_errors(orders)
    for name, ((width, distance),) in effects.items():
        error = orders[name].squared_error(width)
        assert float(losses[name][width]) == pytest.approx(
            distance * float(curves[name][width]) / error, rel=1e-6
        )


def test_language_models_are_compared_with_it() -> None:
    assert "effects" in Method().candidates(tokens=True)
    assert "constant" in Method().candidates(tokens=True)
    assert "effects" not in Method().candidates()
