"""`width=0.7`: keep the same fraction of every layer's channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interpress.budgets.registry import budget

if TYPE_CHECKING:
    from interpress.budgets.search import Search
    from interpress.network.network import Network


@budget("width", meaning="fraction of every layer's channels to keep", example=0.7)
def width(search: Search, value: float) -> Network:
    """Build the network with the same fraction of every space, whatever the allocation."""
    return search.build(search.constant_widths(value))
