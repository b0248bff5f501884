"""Baseline: batch-norm scales, the criterion of network slimming (Liu et al., ICCV 2017).

Network slimming first trains with an L1 penalty on these scales. Here they are used as they are.
"""

from __future__ import annotations

import torch

from interpress.selection.profile import Profile
from interpress.selection.ranking import Ranking, ranked
from interpress.selection.registry import selection


@selection("bn-scale")
def bn_scale(profile: Profile) -> Ranking:
    """Keep the channels with the largest scale; without batch norm, fall back to L1 norms."""
    scales = [rows.abs().mean(1) for rows in profile.producers.scales()]
    if not scales:
        return ranked(profile.producers.norms(1))
    relative = [scale / scale.mean().clamp(min=1e-300) for scale in scales]
    return ranked(torch.stack(relative).sum(0))
