"""The plan of a smaller network: how many channels every space keeps, and which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from interpress.selection.orders import Orders


@dataclass(frozen=True, eq=False)
class Plan:
    """The widths of all shrinkable spaces, and the channels that stay."""

    widths: Mapping[str, int]
    kept: Mapping[str, Tensor]
    """Per space that shrinks, the kept channels, ascending."""
    orders: Orders

    @classmethod
    def at_widths(cls, widths: Mapping[str, int], orders: Orders) -> Plan:
        """Return the plan that keeps the first channels of every order."""
        kept = {
            name: orders[name].kept(width)
            for name, width in widths.items()
            if width < orders.profiles[name].space.size
        }
        return cls(widths, kept, orders)
