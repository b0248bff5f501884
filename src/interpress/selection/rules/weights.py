"""Weight-aware ordering: minimise the error that the consumers of the channels see."""

from __future__ import annotations

from interpress.linalg.pivoting import order_by_weights
from interpress.selection.balance import dependents_last
from interpress.selection.profile import Profile
from interpress.selection.ranking import Ranking
from interpress.selection.registry import selection
from interpress.selection.rules.pivoting import in_blocks, pivoting


@selection("weights")
def weights(profile: Profile) -> Ranking:
    """Keep next the channel that lowers `||(Z - Z[:, kept] @ T) @ U||` most."""
    views = profile.views
    if not any(bool(v.H.any()) for v in views) or not any(bool(v.factor.G.any()) for v in views):
        return pivoting(profile)
    if profile.in_blocks:
        return in_blocks(profile, weighted=True)
    ordering = order_by_weights(profile.factor, profile.H)
    return dependents_last(profile, Ranking(ordering.order, ordering.proxy_errors))
