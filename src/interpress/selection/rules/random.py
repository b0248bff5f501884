"""Baseline: uniform random order."""

from __future__ import annotations

import torch

from interpress.selection.profile import Profile
from interpress.selection.registry import Ranking, ranked, selection


@selection("random")
def random(profile: Profile) -> Ranking:
    """Any order is as good as any other; the seed draws one."""
    return ranked(torch.rand(profile.space.size, generator=profile.generator()))
