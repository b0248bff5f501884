"""Which space every label belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interpress.spaces.grouping import Draft


@dataclass(frozen=True, eq=False)
class Membership:
    """Per label: its channel space and its head space (-1 for none), and its index in each."""

    space: Tensor
    unit: Tensor
    """Index of the channel in `space`."""
    head_space: Tensor
    head: Tensor
    """Index of the head in `head_space`."""

    def kept(self, masks: Mapping[int, Tensor]) -> Tensor:
        """Return whether each label is kept, given for some spaces a mask over their members."""
        kept = torch.ones(self.space.shape, dtype=torch.bool)
        for index, mask in masks.items():
            for space, unit in ((self.space, self.unit), (self.head_space, self.head)):
                labels = torch.nonzero(space == index).reshape(-1)
                kept[labels] &= mask[unit[labels]]
        return kept

    def spaces_in(self, labels: Tensor) -> list[int]:
        """Return the spaces, of channels and of heads, that contain any of these labels."""
        spaces = torch.cat([self.space[labels], self.head_space[labels]]).unique()
        return [index for index in spaces.tolist() if index >= 0]

    def joined(self, first: int, second: int, offset: int) -> Membership:
        """Return the membership with channel space `second` appended to `first`.

        `offset` is the size of the first space. Spaces after the second move down by one.
        """
        in_second = self.space == second
        space = torch.where(in_second, first, self.space)
        space = torch.where(space > second, space - 1, space)
        head_space = torch.where(self.head_space > second, self.head_space - 1, self.head_space)
        unit = torch.where(in_second, self.unit + offset, self.unit)
        return replace(self, space=space, unit=unit, head_space=head_space)


def membership_of(drafts: list[Draft], channel: Tensor, slab_of: Tensor) -> Membership:
    """Return the membership of every label, from its channel and the class of its head (or -1)."""
    count = int(channel.max()) + 1
    tables = []
    for heads, class_of in ((False, channel), (True, slab_of)):
        space = torch.full((count + 1,), -1)
        unit = torch.zeros(count + 1, dtype=torch.long)
        for index, draft in enumerate(drafts):
            if draft.heads == heads:
                numbers = torch.tensor(draft.classes)
                space[numbers] = index
                unit[numbers] = torch.arange(len(numbers))
        tables += [space[class_of], unit[class_of]]  # class -1 reads the spare last entry
    return Membership(*tables)
