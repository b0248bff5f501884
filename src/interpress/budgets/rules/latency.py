"""`latency=0.5`: the largest network that runs in half of the time on this device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from interpress.budgets.registry import budget

if TYPE_CHECKING:
    from interpress.allocation.problem import Widths
    from interpress.budgets.search import Search
    from interpress.network.network import Network


@budget("latency", meaning="fraction of the measured run time to keep", example=0.5)
def latency(search: Search, value: float) -> Network:
    """Bisect over the FLOPs, measuring the run time of every network; refit the ones within."""

    def trial(widths: Widths) -> tuple[Network, float, bool]:
        network = search.build(widths, refit=False)
        ratio = search.latency(network)
        if ratio <= value:  # partly by luck, so a second measurement decides
            ratio = search.latency(network, thorough=True)
        within = ratio <= value
        if within and search.method.refit:
            network = search.build(widths)
        return replace(network, latency=ratio), ratio, within

    return search.bisect(
        f"latency={value:g}",
        trial,
        smaller_if_within=False,
        remedy="ask for a larger fraction, or calibrate in larger batches, if small ones are "
        "dominated by overhead",
        nearest=min,
    )
