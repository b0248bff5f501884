"""Which spaces every label belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interpress.spaces.grouping import Draft


@dataclass(frozen=True, eq=False)
class Level:
    """Per label: a space (-1 for none), and the index of the channel or head in that space."""

    space: Tensor
    unit: Tensor


@dataclass(frozen=True, eq=False)
class Membership:
    """The spaces of every label: at most one of channels, one of heads, and one of members.

    Heads that others share are groups; members are the heads of a group.
    """

    levels: tuple[Level, ...]

    def kept(self, masks: Mapping[int, Tensor]) -> Tensor:
        """Return whether each label is kept, given for some spaces a mask over their members."""
        kept = torch.ones(self.levels[0].space.shape, dtype=torch.bool)
        for index, mask in masks.items():
            for level in self.levels:
                labels = torch.nonzero(level.space == index).reshape(-1)
                kept[labels] &= mask[level.unit[labels]]
        return kept

    def spaces_in(self, labels: Tensor) -> list[int]:
        """Return the spaces, of channels and of heads, that contain any of these labels."""
        spaces = torch.cat([level.space[labels].reshape(-1) for level in self.levels]).unique()
        return [index for index in spaces.tolist() if index >= 0]

    def units(self, index: int, labels: Tensor) -> Tensor:
        """Return, per label, the unit of a space that it belongs to, or -1."""
        units = torch.full(labels.shape, -1)
        for level in self.levels:
            units = torch.where(level.space[labels] == index, level.unit[labels], units)
        return units

    def joined(self, first: int, second: int, offset: int) -> Membership:
        """Return the membership with channel space `second` appended to `first`.

        `offset` is the size of the first space. Spaces after the second move down by one.
        """
        levels = []
        for level in self.levels:
            in_second = level.space == second
            space = torch.where(in_second, first, level.space)
            space = torch.where(space > second, space - 1, space)
            levels.append(Level(space, torch.where(in_second, level.unit + offset, level.unit)))
        return replace(self, levels=tuple(levels))


def membership_of(drafts: list[Draft], classes: Sequence[Tensor]) -> Membership:
    """Return the membership of every label; `classes` has its class (or -1) at every level."""
    count = max(int(class_of.max()) for class_of in classes) + 1
    levels = []
    for number, class_of in enumerate(classes):
        space = torch.full((count + 1,), -1)
        unit = torch.zeros(count + 1, dtype=torch.long)
        for index, draft in enumerate(drafts):
            if draft.level == number:
                numbers = torch.tensor(draft.classes)
                space[numbers] = index
                unit[numbers] = torch.arange(len(numbers))
        levels.append(Level(space[class_of], unit[class_of]))  # -1 reads the spare last entry
    return Membership(tuple(levels))
