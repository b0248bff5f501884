"""Backward elimination: drop the channel whose removal the consumers can compensate best.

Like `weights`, but all inputs of the consumers are free, kernel positions included, because the
refit solves for all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.calibration.halves import Prior
from interpress.linalg.elimination import eliminate
from interpress.linalg.factor import RFactor, safe_cholesky
from interpress.linalg.pivoting import order_by_pivoting
from interpress.selection.balance import balanced_dependents
from interpress.selection.profile import Profile
from interpress.selection.ranking import Ranking
from interpress.selection.registry import selection
from interpress.selection.rules.weights import weights
from interpress.selection.tap_view import TapView

_FASTER_ON_CPU = 2048  # channels up to which a pivoted factorisation is fastest on the CPU
_DEPENDENT = 1e-4
"""Squared error on other rows, relative to the size of the columns, up to which they count as
dependent. It is not zero if a channel is active in one half of the examples only."""


@selection("patches")
def patches(profile: Profile) -> Ranking:
    """Drop first the channel whose removal re-solved consumers can compensate best."""
    consumers = [view.patches for view in profile.views if view.patches is not None]
    if not consumers or len(consumers) < len(profile.views):
        return weights(profile)
    cells = profile.space.cells
    units, errors = eliminate(
        consumers, _dependent(profile), cells if len(cells.unique()) > 1 else None
    )
    relative = (errors / errors[0].clamp(min=1e-300)).sqrt()
    return Ranking(units, relative, errors)


def _dependent(profile: Profile) -> Tensor:
    """Return the channels that are linear combinations of others, such as dead ones.

    With few rows many channels look dependent. They are only if the same combinations hold on rows
    that were not fitted.
    """
    if profile.in_blocks:
        return torch.zeros(0, dtype=torch.long)
    if safe_cholesky(profile.factor.G) is not None:
        return torch.zeros(0, dtype=torch.long)
    factor = profile.factor
    if factor.n <= _FASTER_ON_CPU:
        gram, root = (None if m is None else m.cpu() for m in (factor.gram, factor.root))
        factor = RFactor(factor.rows, factor.floor, gram=gram, root=root)
    ordering = order_by_pivoting(factor)
    order = ordering.order.cpu()
    kept, dropped = order[ordering.independent.cpu()], order[~ordering.independent.cpu()]
    if len(profile.space.cells.unique()) > 1:
        dropped = balanced_dependents(factor, profile.space.cells)
        kept = order[~torch.isin(order, dropped)]
    if all(_holds_on_other_rows(view, kept, dropped) for view in profile.views):
        return dropped
    return order[:0]


def _holds_on_other_rows(view: TapView, kept: Tensor, dropped: Tensor) -> bool:
    """Return whether dropped columns depend on the kept ones in both halves of the examples."""
    halves = view.halves
    if not len(dropped):
        return True
    kept, dropped = kept.to(halves.second.device), dropped.to(halves.second.device)
    if not halves.both:  # one row shows at most which columns are zero
        return not bool(halves.factor.G.diagonal()[dropped].any())
    size = float(halves.factor.G.diagonal()[dropped].sum()) / sum(halves.rows)
    return halves.error(kept, Prior()) <= _DEPENDENT * size
