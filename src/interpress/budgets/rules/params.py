"""`params=0.5`: keep half of the parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interpress.budgets.registry import budget

if TYPE_CHECKING:
    from interpress.budgets.search import Search
    from interpress.network.network import Network


@budget(
    "params",
    meaning="fraction of the parameters to keep",
    example=0.5,
    resource="params",
    takes_low_rank=True,
)
def params(search: Search, value: float) -> Network:
    """Build the network at the point of the path with this fraction of the parameters."""
    return search.build_best(value, "params")
