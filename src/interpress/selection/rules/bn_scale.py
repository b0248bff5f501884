"""Baseline: batch-norm scales, the criterion of network slimming (Liu et al., ICCV 2017).

Network slimming trains with an L1 penalty on these scales first; the networks compared here were
trained without one.
"""

from __future__ import annotations

import torch

from interpress.selection.profile import Profile
from interpress.selection.registry import Ranking, ranked, selection
from interpress.selection.rules.magnitude import filter_norms


@selection("bn-scale")
def bn_scale(profile: Profile) -> Ranking:
    """Channels with the largest scale stay; a space without batch norm goes by its weights."""
    sizes = [rows.abs().mean(1) for rows in profile.making.scales()]
    if not sizes:
        return ranked(filter_norms(profile, 1))
    return ranked(torch.stack([size / size.mean().clamp(min=1e-300) for size in sizes]).sum(0))
