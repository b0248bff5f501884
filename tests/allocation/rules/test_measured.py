"""`measured`: losses scaled, cautiously, to the measured effect of a space."""

from __future__ import annotations

import pytest
import torch

from interpress.allocation.effects import Effects
from interpress.allocation.registry import consumer_errors
from interpress.allocation.rules.measured import effect_factor, measured_losses
from interpress.selection.orders import Orders


def test_losses_are_the_consumers_errors_times_one_factor(orders: Orders, effects: Effects) -> None:
    plain, scaled = consumer_errors(orders), measured_losses(orders, effects)
    for name, order in orders.items():
        factor = effect_factor(order, effects[name])
        torch.testing.assert_close(scaled[name], plain[name] * factor)


def test_the_factor_is_shrunk_towards_one(orders: Orders) -> None:
    name = next(iter(orders))
    profile, order = orders.profiles[name], orders[name]
    error = profile.squared_error(order.units, 8)
    assert effect_factor(order, [(8, error)]) == pytest.approx(1.0)
    assert effect_factor(order, [(8, 1024 * error)]) == pytest.approx(2.0)  # 1024 ** 0.1
    assert effect_factor(order, [(8, error / 1024)]) == pytest.approx(0.5)


@pytest.mark.parametrize("distance", [0.0, float("inf"), float("nan")])
def test_an_effect_that_says_nothing_is_ignored(distance: float, orders: Orders) -> None:
    name = next(iter(orders))
    assert effect_factor(orders[name], [(8, distance)]) == 1.0
    assert effect_factor(orders[name], []) == 1.0
