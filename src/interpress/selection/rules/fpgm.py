"""Baseline: filter pruning via geometric median (He et al., CVPR 2019)."""

from __future__ import annotations

import torch

from interpress.selection.profile import Profile
from interpress.selection.ranking import Ranking, ranked
from interpress.selection.registry import selection


@selection("fpgm")
def fpgm(profile: Profile) -> Ranking:
    """Drop the filters with the smallest sum of distances to all others first."""
    total = torch.zeros(profile.space.size, dtype=torch.float64)
    for rows in profile.producers.filters():
        distances = torch.cdist(rows, rows).sum(1)
        total += distances / distances.mean().clamp(min=1e-300)
    return ranked(total)
