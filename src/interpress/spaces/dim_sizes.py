"""The length of a dim as a sum over channel spaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction

import torch
from torch import Tensor

from interpress.labels.trace import Value
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.membership import Membership

Size = tuple[tuple[int, tuple[int, ...]], ...]
"""A dim as a sum of parts: the number of elements, and the spaces that shrink them.

If a space keeps a share of its channels, its parts keep the same share of their elements.
Flattening (C, 2, 2) of space 0: each channel has 4 repeats, so the dim is `((4 * C, (0,)),)`.
Concatenating 8 channels of space 0 and 16 of space 1: `((8, (0,)), (16, (1,)))`.
"""


def length(size: Size, shares: Mapping[int, Fraction]) -> int:
    """Return the length of a dim when each space keeps its share; spaces not named are whole."""
    if not any(space in shares for _, spaces in size for space in spaces):
        return sum(count for count, _ in size)
    total = Fraction(0)
    for count, spaces in size:
        part = Fraction(count)
        for space in spaces:
            part *= shares.get(space, 1)
        total += part
    return int(total)


def dim_length(size: Size, shares: Mapping[int, float]) -> float:
    """Return the length of a dim when each space keeps its share, in floating point."""
    total = 0.0
    for count, spaces in size:
        part = float(count)
        for space in spaces:
            part *= shares.get(space, 1.0)
        total += part
    return total


def labels_along(value: Value, dim: int) -> Tensor | None:
    """Return the labels along a dim, at index 0 of all others; None if the dim has no labels."""
    labellings = [labelling for labelling in value.labellings if dim in labelling.support]
    labelling = next(
        (la for la in labellings if not la.slab), labellings[0] if labellings else None
    )
    if labelling is None:
        return None
    return labelling.labels.movedim(dim, -1).reshape(-1, value.shape[dim])[0]


def size_of(labels: Tensor, membership: Membership, spaces: Sequence[ChannelSpace]) -> Size:
    """Return the size of a dim with these labels.

    A space shrinks a dim that contains several channels (or heads) of one of its cells. A dim with
    one channel of every cell, such as the heads of `(heads, head_dim)`, keeps its length.
    """
    shrinks = {
        index: _repeats_a_cell(
            spaces[index].cells, level.unit[labels[level.space[labels] == index]]
        )
        for level in membership.levels
        for index in level.space[labels].unique().tolist()
        if index >= 0
    }
    counts: dict[tuple[int, ...], int] = {}
    indices_by_level = [level.space[labels].tolist() for level in membership.levels]
    for indices, count in Counter(zip(*indices_by_level, strict=True)).items():
        key = tuple(index for index in indices if shrinks.get(index))
        counts[key] = counts.get(key, 0) + count
    return tuple((count, key) for key, count in counts.items())


def _repeats_a_cell(cells: torch.Tensor, units: torch.Tensor) -> bool:
    """Return whether some cell has more than one of its channels among `units`."""
    distinct = units.unique()
    return len(distinct) > len(cells[distinct].unique())
