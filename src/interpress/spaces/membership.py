"""Which space every label belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interpress.spaces.grouping import Draft


@dataclass(frozen=True, eq=False)
class Membership:
    """Per label: the channel space and the head space it belongs to, and its number there."""

    space: Tensor
    unit: Tensor
    head_space: Tensor
    head: Tensor

    def kept(self, masks: Mapping[int, Tensor]) -> Tensor:
        """Whether each label stays, given a mask of units for some of the spaces."""
        stays = torch.ones(self.space.shape, dtype=torch.bool)
        for index, mask in masks.items():
            for space, unit in ((self.space, self.unit), (self.head_space, self.head)):
                mine = torch.nonzero(space == index).reshape(-1)
                stays[mine] &= mask[unit[mine]]
        return stays

    def spaces_in(self, labels: Tensor) -> list[int]:
        """The spaces that have any of these labels."""
        found = torch.cat([self.space[labels], self.head_space[labels]]).unique()
        return [index for index in found.tolist() if index >= 0]

    def joined(self, first: int, second: int, offset: int) -> Membership:
        """Two channel spaces made one: the second's units follow the first's."""
        mine = self.space == second
        space = torch.where(mine, first, self.space)
        space = torch.where(space > second, space - 1, space)
        head_space = torch.where(self.head_space > second, self.head_space - 1, self.head_space)
        unit = torch.where(mine, self.unit + offset, self.unit)
        return replace(self, space=space, unit=unit, head_space=head_space)


def membership_of(drafts: list[Draft], channel: Tensor, slab_of: Tensor) -> Membership:
    """The membership of every label, from its channel and the slab it lies in (or -1)."""
    count = int(channel.max()) + 1
    tables = []
    for heads, key in ((False, channel), (True, slab_of)):
        space = torch.full((count + 1,), -1)
        unit = torch.zeros(count + 1, dtype=torch.long)
        for index, draft in enumerate(drafts):
            if draft.heads == heads:
                numbers = torch.tensor(draft.classes)
                space[numbers] = index
                unit[numbers] = torch.arange(len(numbers))
        tables += [space[key], unit[key]]  # key -1 reads the spare last entry
    return Membership(*tables)
