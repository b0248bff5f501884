"""Compute `T` per tap from kept channels: `Z ~= Z[:, kept] @ T`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from interpress.linalg.factor import RFactor, safe_cholesky
from interpress.linalg.interpolation import Interpolation
from interpress.linalg.ordering import ColumnOrdering
from interpress.linalg.pivoting import are_independent, order_as_given
from interpress.spaces.spaces import Spaces
from interpress.spaces.taps import Tap
from interpress.surgery.cut import Cut


def interpolations(
    spaces: Spaces, kept: Mapping[str, Tensor], factors: Mapping[str, RFactor]
) -> dict[str, Tensor]:
    """Return the least-squares `T` of every tap that loses a column."""
    cut = Cut(spaces, kept)
    matrices = {}
    for name in dict.fromkeys(tap for space in kept for tap in spaces[space].taps):
        T = interpolation_at(spaces.taps[name], cut, factors[name])
        if T is not None:
            matrices[name] = T
    return matrices


def interpolation_at(tap: Tap, cut: Cut, factor: RFactor) -> Tensor | None:
    """Return the least-squares `T` of one tap; None if it keeps all its columns."""
    kept_columns = cut.columns(tap)
    return None if len(kept_columns) == tap.size else _interpolation(factor, kept_columns, tap)


def _interpolation(factor: RFactor, kept_columns: Tensor, tap: Tap) -> Tensor:
    """Return `inverse(G[kept, kept]) @ G[kept, :]` if that is accurate, else use an ordering.

    A kept column that depends linearly on the other kept columns, such as a dead channel, is not
    used to interpolate removed columns.
    """
    kept = kept_columns.to(factor.device)
    all_rows = rows = torch.arange(len(kept), device=factor.device)
    G_rows = factor.G.index_select(0, kept)  # (k, n)
    lower = safe_cholesky(G_rows.index_select(1, kept))
    if lower is None:
        rows = torch.nonzero(are_independent(factor, kept)).reshape(-1)
        G_rows = G_rows.index_select(0, rows)
        lower = safe_cholesky(G_rows.index_select(1, kept[rows]))
    if lower is not None:
        removed = _kept_first(kept_columns, tap)[len(kept_columns) :].to(factor.device)
        T = factor.G.new_zeros(len(kept), factor.n)
        T[all_rows, kept] = 1.0
        T[rows[:, None], removed] = torch.cholesky_solve(G_rows.index_select(1, removed), lower)
    else:
        ordering = order_as_given(factor, _kept_first(kept_columns, tap).to(factor.device))
        T = ordering.at_rank(len(kept_columns)).T
    if bool((tap.groups == tap.groups[0]).all()):
        return T
    # columns of different groups are orthogonal in G, so this removes only rounding errors
    return T * (tap.groups[kept_columns][:, None] == tap.groups[None, :]).to(T)


def tap_ordering(
    tap: Tap, kept_columns: Tensor, factor: RFactor
) -> tuple[ColumnOrdering, Interpolation]:
    """Return an ordering of one tap with the kept columns first, and its interpolation."""
    ordering = order_as_given(factor, _kept_first(kept_columns, tap).to(factor.device))
    return ordering, ordering.at_rank(len(kept_columns))


def _kept_first(kept_columns: Tensor, tap: Tap) -> Tensor:
    """Return all columns of a tap: the kept ones, then the removed ones, ascending."""
    is_removed = torch.ones(tap.size, dtype=torch.bool)
    is_removed[kept_columns] = False
    return torch.cat([kept_columns, torch.nonzero(is_removed).reshape(-1)])
