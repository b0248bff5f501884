"""Baseline: the criterion of soft filter pruning (He et al., IJCAI 2018).

The published method sets the filters of smallest Euclidean norm to zero, trains, and selects again
after every epoch. Without training only its first selection remains, which equals `l2`.
"""

from __future__ import annotations

from interpress.selection.profile import Profile
from interpress.selection.ranking import Ranking, ranked
from interpress.selection.registry import selection


@selection("soft")
def soft(profile: Profile) -> Ranking:
    """Keep the filters with the largest Euclidean norm."""
    return ranked(profile.producers.norms(2))
