"""`flops=0.5`: keep half of the FLOPs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interpress.budgets.registry import budget

if TYPE_CHECKING:
    from interpress.budgets.search import Search
    from interpress.network.network import Network


@budget("flops", meaning="fraction of the FLOPs to keep", example=0.5, takes_low_rank=True)
def flops(search: Search, value: float) -> Network:
    """Build the network at the point of the allocation's path with this fraction of the FLOPs."""
    return search.build_best(value, "flops")
