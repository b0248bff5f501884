"""`perplexity=1.1`: the smallest network whose perplexity is at most 1.1 times the original's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interpress.budgets.registry import budget
from interpress.errors import ArgumentError

if TYPE_CHECKING:
    from interpress.allocation.problem import Widths
    from interpress.budgets.search import Search
    from interpress.network.network import Network


@budget(
    "perplexity",
    meaning="largest held-out perplexity relative to the original's",
    example=1.1,
    above_one=True,
)
def perplexity(search: Search, value: float) -> Network:
    """Bisect over the FLOPs, measuring the perplexity of every network on held-out text."""

    def trial(widths: Widths) -> tuple[Network, float, bool]:
        network = search.build(widths)
        if network.agreement is None or network.agreement.tokens is None:
            raise ArgumentError(
                "perplexity= needs a model that predicts the next token of its input, which this "
                "one does not; use flops= or agreement="
            )
        ratio = network.agreement.tokens.ratio
        return network, ratio, ratio <= value

    return search.bisect(
        f"perplexity={value:g}",
        trial,
        smaller_if_within=True,
        remedy="allow a higher perplexity, or give more calibration text",
        nearest=min,
    )
