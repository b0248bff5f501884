"""Baseline: provable filter pruning's sampling (Liebenwein et al., ICLR 2020)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from interpress.selection.contributions import patches_and_weights, summed_by_unit
from interpress.selection.profile import Profile
from interpress.selection.registry import Ranking, ranked, selection

_ROWS = 512


@selection("pfp")
def pfp(profile: Profile) -> Ranking:
    """Channels are drawn, without replacement, in proportion to their sensitivity.

    The sensitivity is the largest share a channel has, over examples and outputs, in what its
    reader adds up, positive and negative parts apart. The original draws with replacement and
    scales what it drew; what is scaled here is left to the correction.
    """
    sensitivity = torch.zeros(profile.space.size, dtype=torch.float64)
    for reading in profile.readings:
        look = profile.look(reading.tap)
        found = patches_and_weights(look, _ROWS, profile.generator())
        if found is None:
            weight = reading.H.diagonal().reshape(profile.space.size, -1).sum(1).sqrt()
            sizes = summed_by_unit(look.columns()[:_ROWS].abs().to(weight), look, profile)
            own = _share((sizes * weight)[:, None])
        else:
            own = _largest_shares(*found, partial(summed_by_unit, look=look, profile=profile))
        sensitivity = torch.maximum(sensitivity, own)
    waiting = torch.empty_like(sensitivity).exponential_(generator=profile.generator())
    return ranked(sensitivity / waiting)  # a race: who is drawn first


def _largest_shares(X: Tensor, W: Tensor, by_unit: Callable[[Tensor], Tensor]) -> Tensor:
    """Per unit, its largest share over rows, outputs and signs."""
    best: Tensor | None = None
    for rows in X.split(16):
        up, down = rows.clamp(min=0), rows.clamp(max=0)
        for left, right in ((W.clamp(min=0), W.clamp(max=0)), (W.clamp(max=0), W.clamp(min=0))):
            parts = torch.einsum("rct,oct->roc", up, left)
            parts += torch.einsum("rct,oct->roc", down, right)
            own = _share(by_unit(parts.abs()))
            best = own if best is None else torch.maximum(best, own)
    assert best is not None
    return best


def _share(parts: Tensor) -> Tensor:
    """(rows, outputs, units) as each unit's largest share of a sum."""
    whole = parts.sum(-1, keepdim=True)
    return (parts / whole.clamp(min=1e-30)).amax((0, 1)).double().cpu()
