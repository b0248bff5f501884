"""From widths to what surgery needs: kept channels per space and `T` per tap, with their errors."""

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
    """`T` of every tap that loses a column: the least-squares one for what is kept."""
    cut = Cut(spaces, kept)
    found = {}
    for name in dict.fromkeys(tap for space in kept for tap in spaces[space].taps):
        columns = cut.columns(spaces.taps[name])
        if len(columns) < spaces.taps[name].size:
            found[name] = _interpolation(factors[name], columns, spaces.taps[name])
    return found


def _interpolation(factor: RFactor, columns: Tensor, tap: Tap) -> Tensor:
    """`inverse(G_kk) @ G_k:` where that is safe, else by way of an ordering.

    A kept column that depends on the other kept ones (a dead channel) is of no use to the rest.
    """
    index = columns.to(factor.device)
    every = rows = torch.arange(len(index), device=factor.device)
    mine = factor.G.index_select(0, index)
    lower = safe_cholesky(mine.index_select(1, index))
    if lower is None:
        rows = torch.nonzero(are_independent(factor, index)).reshape(-1)
        mine = mine.index_select(0, rows)
        lower = safe_cholesky(mine.index_select(1, index[rows]))
    if lower is not None:
        others = _first(columns, tap)[len(columns) :].to(factor.device)
        T = factor.G.new_zeros(len(index), factor.n)
        T[every, index] = 1.0
        T[rows[:, None], others] = torch.cholesky_solve(mine.index_select(1, others), lower)
    else:
        ordering = order_as_given(factor, _first(columns, tap).to(factor.device))
        T = ordering.at_rank(len(columns)).T
    # columns of two groups are orthogonal, so that only rounding is lost here
    return T * (tap.groups[columns][:, None] == tap.groups[None, :]).to(T)


def tap_orderings(
    spaces: Spaces, kept: Mapping[str, Tensor], factors: Mapping[str, RFactor]
) -> dict[str, tuple[ColumnOrdering, Interpolation]]:
    """Per tap that loses a column: its kept columns first, ascending, and the rest."""
    cut = Cut(spaces, kept)
    names = dict.fromkeys(tap for name in kept for tap in spaces[name].taps)
    found = {}
    for name in names:
        tap, factor = spaces.taps[name], factors[name]
        columns = cut.columns(tap)
        if len(columns) == tap.size:
            continue
        ordering = order_as_given(factor, _first(columns, tap).to(factor.device))
        found[name] = (ordering, ordering.at_rank(len(columns)))
    return found


def _first(columns: Tensor, tap: Tap) -> Tensor:
    """All columns of a tap, these ones first."""
    rest = torch.ones(tap.size, dtype=torch.bool)
    rest[columns] = False
    return torch.cat([columns, torch.nonzero(rest).reshape(-1)])
