"""Which unit (channel or head) of a space a label belongs to."""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.spaces import Spaces


def units_of(spaces: Spaces, space: ChannelSpace, labels: Tensor) -> Tensor:
    """Return, per label, the unit of a space that it belongs to, or -1."""
    return spaces.membership.units(spaces.index(space), labels)


def columns_by_unit(units: Tensor, count: int) -> Tensor | None:
    """Return (count, most columns of a unit) from the unit of every column; -1 marks other columns.

    A unit may have fewer columns than others, as where both `x` and `x + f(x)` are read beside a
    channel that is read once. Its row then ends with -1. None if no unit has a column.
    """
    per_unit = torch.bincount(units[units >= 0], minlength=count)
    widest = int(per_unit.max())
    if not widest:
        return None
    order = torch.argsort(torch.where(units >= 0, units, count), stable=True)
    table = torch.full((count, widest), -1)
    table[torch.arange(widest) < per_unit[:, None]] = order[: int(per_unit.sum())]
    return table
