"""An estimate of the condition number of the leading columns of a triangular factor."""

from __future__ import annotations

import torch
from torch import Tensor

_PROBES = 8  # random vectors that estimate the condition number


def well_conditioned_count(R: Tensor, largest: float) -> int:
    """Return how many leading columns have a condition number of at most `largest`; at least one.

    The columns are scaled to length one. For a random `g`, `R[:c, :c].T z = g` gives
    `||z[:c]|| ~ ||inverse(R[:c, :c])||_F` for every c at once. Scaling `g` by the column lengths
    scales the columns to length one.
    """
    generator = torch.Generator("cpu").manual_seed(0)
    # drawn for all columns, so that the count does not depend on where the caller cuts R
    probes = torch.randn(R.shape[1], _PROBES, generator=generator, dtype=R.dtype, device="cpu")
    R11, probes = R[:, : len(R)], probes[: len(R)].to(R.device)
    lengths = torch.linalg.vector_norm(R11, dim=0)[:, None]
    z = torch.linalg.solve_triangular(R11.T, probes * lengths, upper=False)
    condition = z.square().mean(dim=1).cumsum(0).sqrt()
    return max(1, int((condition <= largest).sum()))
