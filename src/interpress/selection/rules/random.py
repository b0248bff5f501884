"""Baseline: uniform random order."""

from __future__ import annotations

import torch

from interpress.selection.profile import Profile
from interpress.selection.ranking import Ranking, ranked
from interpress.selection.registry import selection


@selection("random")
def random(profile: Profile) -> Ranking:
    """Rank the channels at random; the seed draws the order."""
    return ranked(torch.rand(profile.space.size, generator=profile.generator()))
