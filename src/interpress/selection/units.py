"""Which unit (channel or head) of a space a label belongs to."""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.spaces import Spaces


def units_of(spaces: Spaces, space: ChannelSpace, labels: Tensor) -> Tensor:
    """Return, per label, the unit of a space that it belongs to, or -1."""
    membership, index = spaces.membership, spaces.index(space)
    where, unit = (
        (membership.head_space, membership.head)
        if space.heads
        else (membership.space, membership.unit)
    )
    return torch.where(where[labels] == index, unit[labels], -1)


def columns_by_unit(units: Tensor, count: int) -> Tensor | None:
    """Return (count, columns per unit) from the unit of every column; -1 marks other columns.

    None if the units do not all have the same number of columns, at least one.
    """
    per_unit = torch.bincount(units[units >= 0], minlength=count)
    if not int(per_unit[0]) or not bool((per_unit == per_unit[0]).all()):
        return None
    order = torch.argsort(torch.where(units >= 0, units, count), stable=True)
    return order[: int(per_unit.sum())].reshape(count, -1)
