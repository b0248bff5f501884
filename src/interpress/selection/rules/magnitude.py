"""Baselines: the size of the weights that make a channel (Li et al., ICLR 2017)."""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.selection.profile import Profile
from interpress.selection.registry import Ranking, ranked, selection


@selection("l1")
def l1(profile: Profile) -> Ranking:
    """Filters with the largest sum of absolute weights stay."""
    return ranked(filter_norms(profile, 1))


@selection("l2")
def l2(profile: Profile) -> Ranking:
    """Filters with the largest Euclidean norm stay."""
    return ranked(filter_norms(profile, 2))


def filter_norms(profile: Profile, p: float) -> Tensor:
    """Per unit, the p-norm of its weights, summed over producers, each of which counts alike."""
    total = torch.zeros(profile.space.size, dtype=torch.float64)
    for rows in profile.making.filters():
        sizes = torch.linalg.vector_norm(rows, p, dim=1)
        total += sizes / sizes.mean().clamp(min=1e-300)
    return total
