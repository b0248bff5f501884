"""The ranking of a space's channels that a selection returns."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Ranking(NamedTuple):
    """The units (channels or heads) of a space, most important first."""

    units: Tensor
    proxy: Tensor
    """(size + 1,) cheap error estimate with k units kept; for pivoting, `|r_{k+1,k+1} / r_11|`."""
    errors: Tensor | None = None
    """(size + 1,) relative squared error with k units kept, if it is not the error of `T`."""


def ranked(scores: Tensor) -> Ranking:
    """Rank units by one score each, largest first; the proxy is the next score over the largest."""
    values = scores.detach().double().cpu()
    units = torch.argsort(values, descending=True, stable=True)
    sizes = values[units].abs()
    proxy = torch.cat([sizes / sizes.max().clamp(min=1e-300), torch.zeros(1)])
    return Ranking(units, proxy)
