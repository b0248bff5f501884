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

_ROUNDING = 1e-6  # part of a null vector that counts as zero


def balanced_dependents(factor: RFactor, cells: Tensor) -> Tensor:
    """Return dependent columns to drop, in order, the same fraction of every cell.

    `cells` is the cell of every column. Columns can be dropped together if their rows of the matrix
    of null vectors are linearly independent: the others then span the same space. As many whole
    rounds as possible are found, where a round drops the same fraction of every cell. This is the
    intersection of two matroids, solved with augmenting paths.
    """
    null = _null_vectors(factor)  # (columns, null vectors)
    sizes = torch.bincount(cells)
    dropped: list[int] = []
    for count in range(1, int(sizes.min()) + 1):
        allowed = count * sizes // sizes.min()
        more = _extended(null, cells, dropped, allowed)
        if more is None:
            break
        dropped = more
    return torch.tensor(dropped, dtype=torch.long)


def _extended(null: Tensor, cells: Tensor, dropped: list[int], allowed: Tensor) -> list[int] | None:
    """Return columns that fill what is allowed per cell, or None if there are none."""
    current = list(dropped)
    while len(current) < int(allowed.sum()):
        path = _augmenting_path(null, cells, current, allowed)
        if path is None:
            return None
        current = [column for column in current if column not in path[1::2]] + path[::2]
    return current


def _augmenting_path(
    null: Tensor, cells: Tensor, dropped: list[int], allowed: Tensor
) -> list[int] | None:
    """Return columns to add (even positions) and to give back (odd ones): one more is dropped.

    The path is a shortest one. It begins at a column that is independent of those dropped and ends
    at one whose cell may lose another; in between, a column takes the place of one in its cell.
    """
    rows = null[dropped]  # (dropped, null vectors)
    shares = null @ torch.linalg.pinv(rows)  # null = shares @ rows + rest
    rest = (null - shares @ rows).norm(dim=1)
    rest[dropped] = 0
    taken = torch.bincount(cells[dropped], minlength=len(allowed))
    open_cell = (taken < allowed)[cells]
    before: dict[int, int | None] = {}
    queue = [
        column for column in rest.argsort(descending=True).tolist() if rest[column] > _ROUNDING
    ]
    before.update(dict.fromkeys(queue))
    best = [column for column in queue if open_cell[column]]
    if best:
        return best[:1]
    for column in queue:  # grows while it is walked
        if open_cell[column]:
            return _walked_back(before, column)
        for position, given_back in enumerate(dropped):
            if given_back in before or cells[given_back] != cells[column]:
                continue
            before[given_back] = column
            for other in shares[:, position].abs().gt(_ROUNDING).nonzero()[:, 0].tolist():
                if other not in before and other not in dropped:
                    before[other] = given_back
                    queue.append(other)
    return None


def _walked_back(before: dict[int, int | None], column: int) -> list[int]:
    path = [column]
    while (previous := before[path[-1]]) is not None:
        path.append(previous)
    return path[::-1]


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
