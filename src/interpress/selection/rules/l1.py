"""Baseline: the L1 norm of the weights that produce a channel (Li et al., ICLR 2017)."""

from __future__ import annotations

from interpress.selection.profile import Profile
from interpress.selection.ranking import Ranking, ranked
from interpress.selection.registry import selection


@selection("l1")
def l1(profile: Profile) -> Ranking:
    """Keep the filters with the largest sum of absolute weights."""
    return ranked(profile.producers.norms(1))
