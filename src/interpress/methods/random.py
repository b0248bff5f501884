"""Baseline: uniform random order."""

from __future__ import annotations

import torch

from interpress.methods.registry import Chosen, ranked, selection
from interpress.profile import Profile


@selection("random")
def random(profile: Profile) -> Chosen:
    """Any order is as good as any other; the seed draws one."""
    return ranked(torch.rand(profile.space.size, generator=profile.generator()))
