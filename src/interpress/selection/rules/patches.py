"""Backward elimination on patches: what is dropped is what the readers can best do without.

Weight-aware like `weights`, but with every input of the readers free, all kernel taps included, as
they are once the refit solves them again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.linalg.elimination import eliminate
from interpress.linalg.factor import RFactor, safe_cholesky
from interpress.linalg.pivoting import order_by_pivoting
from interpress.selection.profile import Profile
from interpress.selection.registry import Ranking, selection
from interpress.selection.rules.weights import weights


@selection("patches")
def patches(profile: Profile) -> Ranking:
    """First to go is the channel whose loss the readers make up for best with the others."""
    readers = [reading.patches for reading in profile.readings if reading.patches is not None]
    if not readers or len(readers) < len(profile.readings):
        return weights(profile)
    units, errors = eliminate(readers, _dependent(profile))
    relative = (errors / errors[0].clamp(min=1e-300)).sqrt()
    return Ranking(units, relative, errors)


def _dependent(profile: Profile) -> Tensor:
    """Channels that are combinations of the others, to rounding: dead ones, duplicates."""
    if profile.in_blocks:
        return torch.zeros(0, dtype=torch.long)
    if safe_cholesky(profile.factor.G) is not None:
        return torch.zeros(0, dtype=torch.long)
    factor = profile.factor  # on the host, where a factorization of this size is quickest
    gram, root = (None if m is None else m.cpu() for m in (factor.gram, factor.root))
    ordering = order_by_pivoting(RFactor(factor.rows, factor.floor, gram=gram, root=root))
    return ordering.order[~ordering.independent]
