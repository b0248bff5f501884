"""Baseline: filter pruning via geometric median (He et al., CVPR 2019)."""

from __future__ import annotations

import torch

from interpress.selection.profile import Profile
from interpress.selection.registry import Ranking, ranked, selection


@selection("fpgm")
def fpgm(profile: Profile) -> Ranking:
    """First to go are the filters with the smallest sum of distances to all others."""
    total = torch.zeros(profile.space.size, dtype=torch.float64)
    for rows in profile.making.filters():
        apart = torch.cdist(rows, rows).sum(1)
        total += apart / apart.mean().clamp(min=1e-300)
    return ranked(total)
