"""Spaces of attention heads: whole heads, and heads within groups that share a head.

A head that is repeated for several others, as a key is for query heads, is a group, and the others
are its members. The groups form a space of heads: a group is removed with all its members. The
members form another space, in which equally many of every group stay.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from interpress.labels.labelling import FIXED
from interpress.spaces.classes import head_classes
from interpress.spaces.grouping import Draft, Grouping, reasons_by_class

_Reasons = dict[int, str]


class HeadGrouping:
    """Forms the spaces of heads.

    `drafts` are the spaces. `class_of_label` has, per label, the class of the head that it belongs
    to, and the class of the member of a group (-1 for none).
    """

    def __init__(self, grouping: Grouping) -> None:
        self._grouping = grouping
        self._trace, self._classes = grouping.trace, grouping.classes
        channel = self._classes.channel
        self._heads = head_classes(self._trace, channel)
        self._copies = [
            copies
            for copies in self._trace.copies
            if bool(torch.isin(channel[copies.members], self._heads).any())
        ]
        heads, head_of_label = self._whole_heads()
        members, member_of_label = self._members()
        self.drafts = [*heads, *members]
        self.class_of_label = (head_of_label, member_of_label)

    def _whole_heads(self) -> tuple[list[Draft], Tensor]:
        """Return the spaces of heads and of groups, and per label the class of its head."""
        channel, fine = self._classes.channel, self._classes.fine
        group_of = self._groups_of_members()
        reasons: _Reasons = {}
        for number in self._heads.tolist():
            if number in self._grouping.reasons and int(group_of[number]) >= 0:
                reasons.setdefault(int(group_of[number]), self._grouping.reasons[number])
        pairs = [
            (joint[is_head], group_of[slab[is_head]])
            for joint, slab in self._grids()
            if bool((is_head := torch.isin(slab, self._heads)).any())
        ]
        head_of_class = self._owners(pairs, fine, reasons)
        self._freeze_owners(head_of_class, fine, reasons)
        is_head = torch.isin(channel, self._heads)
        head_of_label = torch.where(is_head, group_of[channel], head_of_class[fine])
        self._freeze_unabsorbed(head_of_label, reasons)
        sets = [group_of[channel[labels.reshape(-1)]] for labels in self._trace.parallel]
        return self._drafts(sets, reasons, level=1), head_of_label

    def _groups_of_members(self) -> Tensor:
        """Return, per class, its group if it is a member (-1 for none), and itself otherwise."""
        channel = self._classes.channel
        group_of = torch.arange(int(channel.max()) + 1)
        for copies in sorted(self._copies, key=lambda copies: copies.groups is not None):
            groups = torch.tensor([-1]) if copies.groups is None else channel[copies.groups]
            group_of[channel[copies.members]] = groups[:, None].expand_as(copies.members)
        return group_of

    def _members(self) -> tuple[list[Draft], Tensor]:
        """Return the spaces of members, and per label the class of the member it belongs to."""
        channel, strand = self._classes.channel, self._classes.strand
        if not self._copies:
            return [], torch.full_like(channel, -1)
        sets = [channel[copies.members].reshape(-1) for copies in self._copies]
        members = torch.cat(sets).unique()
        reasons = {
            number: self._grouping.reasons[number]
            for number in members.tolist()
            if number in self._grouping.reasons
        }
        pairs = []
        for joint, slab in self._grids():
            is_member = torch.isin(slab, members)
            pairs.append((joint[is_member], slab[is_member]))
        for copies in self._copies:
            pairs.append((copies.joint[0], channel[copies.joint[1]]))
            pairs.append((copies.places, channel[copies.members[0]]))
        member_of_class = self._owners(pairs, strand, reasons)
        self._freeze_owners(member_of_class, strand, reasons)
        is_member = torch.isin(channel, members)
        member_of_label = torch.where(is_member, channel, member_of_class[strand])
        self._freeze_unabsorbed(member_of_label, reasons)
        drafts = self._drafts(sets, reasons, level=2)
        constraints = [(channel[copies.members], copies.where) for copies in self._copies]
        blocks = self._grouping.blocks(constraints)
        for draft in drafts:
            self._grouping.divide_into_cells(draft, blocks)
        return drafts, member_of_label

    def _grids(self) -> Iterable[tuple[Tensor, Tensor]]:
        """Yield labels of channels, and the class of a slab that each of them belongs to."""
        for grid in self._trace.grids:
            for slab in grid.slabs:
                joint, labels = torch.broadcast_tensors(grid.joint, slab.labels)
                yield joint.reshape(-1), self._classes.channel[labels.reshape(-1)]

    @staticmethod
    def _owners(pairs: list[tuple[Tensor, Tensor]], class_of: Tensor, reasons: _Reasons) -> Tensor:
        """Return, per class, the head it belongs to, or -1.

        Heads that have a class in common get a reason to be frozen.
        """
        owner = torch.full((int(class_of.max()) + 1,), -1)
        for joint, heads in pairs:
            known = (heads >= 0) & (joint != FIXED)
            channel, head = class_of[joint[known]], heads[known]
            clash = (owner[channel] >= 0) & (owner[channel] != head)
            for number in head[clash].unique().tolist():
                reasons.setdefault(number, "its heads share channels")
            owner[channel] = head
        return owner

    def _freeze_owners(self, owner: Tensor, class_of: Tensor, reasons: _Reasons) -> None:
        """Give the heads of frozen classes the same reason."""
        frozen = reasons_by_class(self._trace.frozen, class_of)
        for number in torch.nonzero(owner >= 0).reshape(-1).tolist():
            if number in frozen:
                reasons.setdefault(int(owner[number]), frozen[number])

    def _freeze_unabsorbed(self, head_of_label: Tensor, reasons: _Reasons) -> None:
        """Freeze heads that are summed by a read where no weight can absorb `T`."""
        tapped = {(site.op, site.argument) for tap in self._grouping.taps for site in tap.sites}
        for read in self._trace.reads:
            if any((read.op, side.argument) in tapped for side in read.sides):
                continue
            for side in read.sides:
                for row in head_of_label[side.aligned]:
                    summed_heads = row[row >= 0].unique().tolist()
                    if len(summed_heads) > 1:
                        for number in summed_heads:
                            reasons.setdefault(number, f"{read.op.location} cannot absorb T")

    def _drafts(self, sets: Iterable[Tensor], reasons: _Reasons, level: int) -> list[Draft]:
        """Return one draft per set of heads; sets that overlap are merged."""
        drafts: list[Draft] = []
        for numbers in (set(classes[classes >= 0].tolist()) for classes in sets):
            overlapping = [draft for draft in drafts if numbers & set(draft.classes)]
            merged = sorted(
                numbers.union(*(set(draft.classes) for draft in overlapping)),
                key=self._grouping.first_label,
            )
            drafts = [draft for draft in drafts if draft not in overlapping]
            drafts.append(Draft(merged, level=level, cells=[0] * len(merged)))
        for draft in drafts:
            draft.frozen = next((reasons[n] for n in draft.classes if n in reasons), None)
        return [draft for draft in drafts if len(draft.classes) > 1]
