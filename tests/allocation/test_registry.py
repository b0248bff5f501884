"""How losses are predicted from orders."""

from __future__ import annotations

import pytest
import torch

from interpress import ArgumentError
from interpress.allocation.registry import ALLOCATIONS, consumer_errors, monotone, pivot_ratios
from interpress.selection.orders import Orders


def test_losses_are_raised_until_they_never_increase() -> None:
    losses = torch.tensor([5.0, 3.0, 4.0, 1.0, 2.0, 0.0])
    assert monotone(losses).tolist() == [5.0, 4.0, 4.0, 2.0, 2.0, 0.0]


def test_losses_come_from_the_errors_or_the_proxy_of_an_order(orders: Orders) -> None:
    assert len(orders) == 3
    for name, order in orders.items():
        assert torch.equal(consumer_errors(orders)[name], monotone(order.errors))
        assert torch.equal(pivot_ratios(orders)[name], monotone(order.proxy))


def test_an_unknown_allocation_lists_the_choices() -> None:
    with pytest.raises(ArgumentError, match="allocation='fair' is not known; choose one of const"):
        ALLOCATIONS["fair"]
