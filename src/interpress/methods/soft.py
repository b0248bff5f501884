"""Baseline: the criterion of soft filter pruning (He et al., IJCAI 2018).

The method zeroes the filters of smallest Euclidean norm, trains on, and chooses again after every
epoch. Without training, what is left of it is its first choice, which is that of `l2`.
"""

from __future__ import annotations

from interpress.methods.magnitude import filter_norms
from interpress.methods.registry import Chosen, ranked, selection
from interpress.profile import Profile


@selection("soft")
def soft(profile: Profile) -> Chosen:
    """Filters with the largest Euclidean norm stay."""
    return ranked(filter_norms(profile, 2))
