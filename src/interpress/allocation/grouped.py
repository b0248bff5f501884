"""Let groups of spaces take the place of spaces, so that all members of a group stay equally wide.

A group is named by its first member. Its loss is the sum of its members' losses, and its saving is
that of narrowing all of them. Every allocation then works on groups as it does on spaces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from interpress.allocation.problem import Problem, Widths, spread
from interpress.selection.orders import ChannelOrder, Orders
from interpress.spaces.meter import Meter


def grouped(problem: Problem, groups: Sequence[tuple[str, ...]]) -> Problem:
    """Return the problem of groups. A space that is in no group stays whole."""
    members = {group[0]: group for group in groups if all(name in problem.orders for name in group)}
    orders = problem.orders
    distrust = {
        leader: next((orders.untrusted[n] for n in group if n in orders.untrusted), None)
        for leader, group in members.items()
    }
    by_group = {leader: _mean_proxy(orders, group) for leader, group in members.items()}
    return replace(
        problem,
        orders=replace(orders, by_space=by_group, known_distrust=distrust),
        losses={
            leader: torch.stack([problem.losses[name] for name in group]).sum(0)
            for leader, group in members.items()
        },
        meter=_GroupMeter(problem.meter, members),
        allowed={leader: problem.allowed[leader] for leader in members},
        members=members,
        every_order=orders,
    )


def _mean_proxy(orders: Orders, group: Sequence[str]) -> ChannelOrder:
    """Return the order of the first member, with the mean error estimate of all."""
    proxy = torch.stack([orders[name].proxy for name in group]).mean(0)
    return replace(orders[group[0]], proxy=proxy)


class _GroupMeter(Meter):
    """The cost of a network when all members of a group change together."""

    def __init__(self, meter: Meter, members: Mapping[str, tuple[str, ...]]) -> None:
        self._meter, self._members = meter, members

    def total(self, widths: Mapping[str, int]) -> float:
        """Return the cost with the named groups at these widths and everything else whole."""
        return self._meter.total(spread(widths, self._members))

    def saved(self, widths: Mapping[str, int], name: str, width: int) -> float:
        """Return how much the cost falls if one group changes from its width to `width`."""
        current: Widths = spread(widths, self._members)
        saved = 0.0
        for member in self._members[name]:
            saved += self._meter.saved(current, member, width)
            current[member] = width
        return saved

    def savings(self, widths: Mapping[str, int], name: str, others: Sequence[int]) -> list[float]:
        """Return how much the cost falls for every one of some other widths."""
        return [self.saved(widths, name, width) for width in others]

    def dependent_cost(self, widths: Mapping[str, int], name: str) -> float:
        """Return the cost of all operators that depend on a group."""
        current = spread(widths, self._members)
        return sum(self._meter.dependent_cost(current, member) for member in self._members[name])

    def neighbours(self, name: str) -> set[str]:
        """Return the groups whose savings depend on this group's width, itself included."""
        near = set().union(*(self._meter.neighbours(member) for member in self._members[name]))
        return {leader for leader, group in self._members.items() if near & set(group)}
