"""Weight-aware ordering: what matters is the error that the readers of the channels see."""

from __future__ import annotations

from interpress.linalg.orderings import order_by_weights
from interpress.methods.pivoting import in_blocks, pivoting
from interpress.methods.registry import Chosen, selection
from interpress.profile import Profile


@selection("weights")
def weights(profile: Profile) -> Chosen:
    """Next comes the channel that lowers `||(Z - Z[:, kept] @ T) @ U||` most."""
    if not bool(profile.H.any()) or not bool(profile.factor.G.any()):
        return pivoting(profile)
    if profile.in_blocks:
        return in_blocks(profile, weighted=True)
    ordering = order_by_weights(profile.factor, profile.H)
    return Chosen(ordering.order, ordering.proxy_errors)
