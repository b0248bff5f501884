"""Baseline: the rank of feature maps (HRank, Lin et al., CVPR 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.selection.profile import Profile, TapSample
from interpress.selection.registry import Ranking, ranked, selection


@selection("hrank")
def hrank(profile: Profile) -> Ranking:
    """Channels whose maps have the highest average rank stay.

    Maps are taken where they are read, after activation and pooling. Where a map is one number,
    its rank says how often it is not zero.
    """
    total = torch.zeros(profile.space.size, dtype=torch.float64)
    for reading in profile.readings:
        look = profile.look(reading.tap)
        ranks = _ranks(look)
        units = look.units(profile.space)
        mine = units >= 0
        total.index_add_(0, units[mine], ranks[mine] / ranks.mean().clamp(min=1e-300))
    return ranked(total)


def _ranks(look: TapSample) -> Tensor:
    maps = look.maps().float()
    return torch.linalg.matrix_rank(maps).double().mean(0).cpu()
