"""Baseline: the criterion of soft filter pruning (He et al., IJCAI 2018).

The method zeroes the filters of smallest Euclidean norm, trains on, and chooses again after every
epoch. Without training, what is left of it is its first choice, which is that of `l2`.
"""

from __future__ import annotations

from interpress.selection.profile import Profile
from interpress.selection.registry import Ranking, ranked, selection
from interpress.selection.rules.magnitude import filter_norms


@selection("soft")
def soft(profile: Profile) -> Ranking:
    """Filters with the largest Euclidean norm stay."""
    return ranked(filter_norms(profile, 2))
