"""Plans: the first channels of every order."""

import torch

from interpress.allocation.plan import Plan
from interpress.selection.orders import Orders


def test_a_plan_keeps_the_first_channels_of_spaces_that_shrink(orders: Orders) -> None:
    sizes = {name: orders.profiles[name].space.size for name in orders}
    first = next(iter(sizes))
    widths = {**sizes, first: 5}
    plan = Plan.at_widths(widths, orders)
    assert plan.widths == widths
    assert set(plan.kept) == {first}
    assert torch.equal(plan.kept[first], orders[first].units[:5].sort().values)
