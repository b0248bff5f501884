"""A layer of the smaller network that becomes two thin ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from interpress.linalg.low_rank import Factors


@dataclass(frozen=True, eq=False)
class ThinLayer:
    """The first factors of a layer, from the outputs of the original network.

    While the refit runs, the layer stays one layer: its weight is the product of the factors.
    """

    factors: Factors
    start: Mapping[str, Tensor]
    """The weight at these factors, and the bias, or the mean of the norm after it, by name."""

    @property
    def rank(self) -> int:
        """The number of values between the two layers."""
        return self.factors.rank
