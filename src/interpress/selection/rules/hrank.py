"""Baseline: the rank of feature maps (HRank, Lin et al., CVPR 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.selection.activations import TapSample
from interpress.selection.profile import Profile
from interpress.selection.ranking import Ranking, ranked
from interpress.selection.registry import selection


@selection("hrank")
def hrank(profile: Profile) -> Ranking:
    """Keep the channels whose feature maps have the highest average rank.

    Maps are taken at the tap, after activation and pooling. If a map is one number, its average
    rank is the fraction of examples on which it is not zero.
    """
    total = torch.zeros(profile.space.size, dtype=torch.float64)
    for view in profile.views:
        sample = profile.activations(view.tap)
        ranks = _mean_ranks(sample)
        units = sample.units(profile.space)
        belongs = units >= 0
        total.index_add_(0, units[belongs], ranks[belongs] / ranks.mean().clamp(min=1e-300))
    return ranked(total)


def _mean_ranks(sample: TapSample) -> Tensor:
    maps = sample.maps().float()
    return torch.linalg.matrix_rank(maps).double().mean(0).cpu()
