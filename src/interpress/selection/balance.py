"""Channels that depend on others, where equally many of every cell must be dropped.

A space with several cells (the groups of a convolution, for example) keeps equally many channels of
each. Which of several dependent channels are dropped then matters: a channel of one cell may repeat
one of another cell, and either can go.
"""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.linalg.factor import RFactor
from interpress.selection.profile import Profile
from interpress.selection.ranking import Ranking

_ROUNDING = 1e-9  # part of a null vector that counts as zero


def balanced_dependents(factor: RFactor, cells: Tensor) -> Tensor:
    """Return dependent columns to drop, in order, equally many of every cell.

    `cells` is the cell of every column. Each round drops from the cell with the most columns left.
    A column depends on the remaining ones if some null vector of their Gram matrix is not zero
    there. Dropping it leaves the null vectors that are zero there.
    """
    null = _null_vectors(factor)  # (columns, null vectors)
    left = torch.bincount(cells).double()
    sizes = left.clone()
    remaining = torch.ones(len(cells), dtype=torch.bool)
    dropped: list[int] = []
    while null.shape[1]:
        fullest = (left / sizes) == (left / sizes).max()
        weight = null.norm(dim=1) * (remaining & fullest[cells])
        column = int(weight.argmax())
        if float(weight[column]) <= _ROUNDING:
            break
        direction = null[column] / null[column].norm()
        # rotate the null vectors so that only one is not zero at this column, and leave it out
        basis = torch.linalg.qr(torch.cat([direction[:, None], torch.eye(len(direction))], 1)).Q
        null = null @ basis[:, 1:]
        dropped.append(column)
        remaining[column] = False
        left[cells[column]] -= 1
    rounds = int(((sizes - left) / sizes * sizes.min()).min())
    return _whole_rounds(torch.tensor(dropped, dtype=torch.long), cells, rounds, sizes)


def _whole_rounds(dropped: Tensor, cells: Tensor, rounds: int, sizes: Tensor) -> Tensor:
    """Return the columns dropped until every cell has lost the same fraction."""
    allowed = (rounds * sizes / sizes.min()).long()
    taken = torch.zeros_like(allowed)
    kept: list[int] = []
    for column in dropped.tolist():
        cell = int(cells[column])
        if taken[cell] < allowed[cell]:
            taken[cell] += 1
            kept.append(column)
    return torch.tensor(kept, dtype=torch.long)


def _null_vectors(factor: RFactor) -> Tensor:
    """Return orthonormal vectors that the Gram matrix maps to zero, up to rounding."""
    G = factor.G.cpu()
    scale = G.diagonal().clamp(min=0).sqrt()
    inverse = torch.where(scale > 0, 1 / scale.clamp(min=1e-300), 0.0)
    values, vectors = torch.linalg.eigh(G * inverse[:, None] * inverse[None, :])
    floor = max(factor.floor, 1e-7) ** 2 * max(float(values[-1]), 1e-300)
    return vectors[:, values <= floor]


def dependents_last(profile: Profile, ranking: Ranking) -> Ranking:
    """Return a ranking whose dependent channels come last, where cells must stay balanced."""
    cells = profile.space.cells
    if profile.in_blocks or len(cells.unique()) == 1:
        return ranking
    dependent = balanced_dependents(profile.factor, cells)
    units = ranking.units.cpu()
    others = units[~torch.isin(units, dependent)]
    return ranking._replace(units=torch.cat([others, dependent.flip(0)]))
