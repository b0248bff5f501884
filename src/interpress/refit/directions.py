"""Fewer unknowns for a layer with a large kernel: the main directions of every channel's patches.

Patches of smooth images vary little in most directions, and the ridge hardly lets weights change
along those. So the weights of a layer with very many inputs change only along the directions in
which its patches are largest. Solving costs the square of the number of unknowns for every row, and
its cube once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_ROWS = 1024
"""About how many rows directions are found from: many for the patches of a single channel."""


@dataclass(frozen=True, eq=False)
class Directions:
    """Orthonormal directions of the patches of every channel, of which some are chosen."""

    vectors: Tensor
    """(channels, kernel, kernel): the directions of each channel, as columns."""
    chosen: Tensor
    """Indices among all directions of all channels."""

    @classmethod
    def largest(cls, X: Tensor, kernel: int, count: int) -> Directions:
        """Return the `count` directions in which centred inputs (rows, unknowns) are largest."""
        some = X[:: max(1, len(X) // _ROWS)]
        by_channel = some.reshape(len(some), -1, kernel)
        moments = torch.einsum("rck,rcl->ckl", by_channel, by_channel)
        values, vectors = torch.linalg.eigh(moments.double().cpu())
        chosen = values.flatten().argsort(descending=True, stable=True)[:count].sort().values
        return cls(vectors.to(X), chosen.to(X.device))

    def projected(self, X: Tensor) -> Tensor:
        """Return inputs (rows, unknowns) along the chosen directions."""
        channels, kernel, _ = self.vectors.shape
        by_channel = X.reshape(len(X), channels, kernel).permute(1, 2, 0)
        # (channels, kernel, rows): products with rows last are three times as fast
        along = torch.bmm(self.vectors.mT, by_channel).reshape(channels * kernel, len(X))
        return along.index_select(0, self.chosen).T

    def lifted(self, change: Tensor) -> Tensor:
        """Return the change of all weights (unknowns, outputs) from that along the directions."""
        channels, kernel, _ = self.vectors.shape
        along = change.new_zeros(channels * kernel, change.shape[1])
        along[self.chosen] = change
        by_channel = along.reshape(channels, kernel, -1)
        return (self.vectors @ by_channel).flatten(0, 1)
