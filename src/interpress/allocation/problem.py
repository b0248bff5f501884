"""What an allocation looks at: errors and costs of every space at every width."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from interpress.allocation.plan import Plan
from interpress.checks import is_whole
from interpress.errors import ArgumentError
from interpress.selection.orders import Orders
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.meter import Meter
from interpress.spaces.spaces import Spaces

Widths = dict[str, int]
"""Per space, how many channels (or heads) it keeps."""

_FEWEST_IN_GROUP = 2
"""Heads of a group that stay. Code that repeats keys for one head takes another path, so that the
layers of both networks could not be paired in the refit."""


@dataclass(frozen=True)
class WidthLimits:
    """Which widths are allowed: multiples of `round_to`, at least `min_width`."""

    round_to: int = 1
    min_width: int = 1
    same_widths: bool = False
    """Whether corresponding spaces of all blocks get the same width."""

    def __post_init__(self) -> None:
        for name, value in (("round_to", self.round_to), ("min_width", self.min_width)):
            if not is_whole(value) or value < 1:
                raise ArgumentError(f"{name}={value!r}; give a whole number of at least 1")

        if not isinstance(self.same_widths, bool):
            raise ArgumentError(f"same_widths={self.same_widths!r}; give True or False")

    def widths(self, space: ChannelSpace) -> list[int]:
        """Return the widths that a space may take, widest first; its full size is always one."""
        unit = math.lcm(space.step, self.round_to)
        smallest = min(max(self.min_width, 1), space.size)
        if space.in_groups:
            smallest = max(smallest, _FEWEST_IN_GROUP * space.step)
        allowed = [w for w in range(unit, space.size, unit) if w >= smallest]
        return [space.size, *reversed(allowed)]


def spread(widths: Mapping[str, int], members: Mapping[str, tuple[str, ...]]) -> Widths:
    """Return the width of every member of a group; other names stay as they are."""
    return {
        member: width for name, width in widths.items() for member in members.get(name, (name,))
    }


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything that an allocation looks at."""

    spaces: Spaces
    orders: Orders
    losses: Mapping[str, Tensor]
    """Per space, (size + 1,) predicted loss with k units kept; never increases with k."""
    meter: Meter
    allowed: Mapping[str, list[int]]
    """Per space, the widths it may take, widest first."""
    step: float = 0.05
    """The fraction of a layer that one step of the allocation "iterative" cuts."""
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Per group of spaces, its members, if all of them keep the same width; see `grouped`."""
    every_order: Orders | None = None
    """The orders of all members, if the problem is one of groups."""
    unit: str = ""
    """What the losses are, in words."""

    def plan(self, widths: Mapping[str, int]) -> Plan:
        """Return the plan of some widths, for all members of groups."""
        orders = self.every_order or self.orders
        whole = {name: self.spaces[name].size for name in orders}
        return Plan.at_widths({**whole, **spread(widths, self.members)}, orders)

    def sparing(self, names: Collection[str]) -> Problem:
        """Return the same problem with some spaces kept whole."""
        allowed = {
            name: widths[:1] if name in names else widths for name, widths in self.allowed.items()
        }
        return replace(self, allowed=allowed)

    def full(self) -> Widths:
        """Return the widths of the original network."""
        return {name: self.spaces[name].size for name in self.orders}

    def loss(self, widths: Mapping[str, int]) -> float:
        """Return the predicted loss, summed over spaces."""
        return sum(float(self.losses[name][width]) for name, width in widths.items())
