"""`agreement=0.99`: the smallest network that makes 99 % of the original's decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interpress.budgets.registry import budget
from interpress.errors import ArgumentError

if TYPE_CHECKING:
    from interpress.allocation.problem import Widths
    from interpress.budgets.search import Search
    from interpress.network.network import Network


@budget("agreement", meaning="least agreement with the original on held-out data", example=0.99)
def agreement(search: Search, value: float) -> Network:
    """Bisect over the FLOPs, measuring the agreement of every network on held-out data."""

    def trial(widths: Widths) -> tuple[Network, float, bool]:
        network = search.build(widths)
        if network.agreement is None or network.agreement.agreement is None:
            raise ArgumentError(
                "agreement= needs a classifier, but this model's output looks like a regression; "
                "use flops= or error=, or say what the output means with kind="
            )
        fraction = network.agreement.agreement
        return network, fraction, fraction >= value

    return search.bisect(
        f"agreement={value:g}",
        trial,
        smaller_if_within=True,
        remedy="ask for a lower agreement, or give more calibration data",
    )
