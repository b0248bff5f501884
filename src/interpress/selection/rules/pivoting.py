"""The paper's ordering: column-pivoted QR of the activations."""

from __future__ import annotations

import torch

from interpress.linalg.blocks import order_blocks
from interpress.linalg.pivoting import order_by_pivoting
from interpress.selection.balance import dependents_last
from interpress.selection.profile import Profile
from interpress.selection.ranking import Ranking
from interpress.selection.registry import selection


@selection("pivoting")
def pivoting(profile: Profile) -> Ranking:
    """Keep next the channel whose activations the kept ones reproduce worst."""
    if profile.in_blocks:
        return in_blocks(profile, weighted=False)
    ordering = order_by_pivoting(profile.factor)
    return dependents_last(profile, Ranking(ordering.order, ordering.proxy_errors))


def in_blocks(profile: Profile, *, weighted: bool) -> Ranking:
    """Rank heads, whose columns are kept or dropped together."""
    terms = []
    for view in profile.views:
        G = view.factor.G
        H = view.H if weighted else torch.eye(len(G), dtype=G.dtype, device=G.device)
        terms.append((G, H, list(torch.arange(len(G)).split(view.per_unit.tolist()))))
    units = order_blocks(terms)
    errors = profile.squared_errors(units).sqrt()
    return Ranking(units, errors / errors[0].clamp(min=1e-300))
