"""The paper's ordering: column-pivoted QR of the activations."""

from __future__ import annotations

import torch

from interpress.linalg.blocks import order_blocks
from interpress.linalg.orderings import order_by_pivoting
from interpress.methods.registry import Chosen, selection
from interpress.profile import Profile


@selection("pivoting")
def pivoting(profile: Profile) -> Chosen:
    """Next comes the channel whose activations are furthest from those of the channels before."""
    if profile.in_blocks:
        return in_blocks(profile, weighted=False)
    ordering = order_by_pivoting(profile.factor)
    return Chosen(ordering.order, ordering.proxy_errors)


def in_blocks(profile: Profile, *, weighted: bool) -> Chosen:
    """Heads: several columns stay or go together."""
    terms = []
    for reading in profile.readings:
        G = reading.factor.G
        H = reading.H if weighted else torch.eye(len(G), dtype=G.dtype, device=G.device)
        terms.append((G, H, torch.arange(len(G)).reshape(-1, reading.per_unit)))
    units = order_blocks(terms)
    errors = profile.squared_errors(units).sqrt()
    return Chosen(units, errors / errors[0].clamp(min=1e-300))
