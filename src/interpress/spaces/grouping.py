"""From channels to spaces: which channels form one space, and in which blocks they must leave."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from interpress.labels.trace import Trace
from interpress.spaces.classes import Classes
from interpress.spaces.taps import Tap


@dataclass
class Draft:
    """A space in the making: its channels (classes), their cells, and a reason if frozen."""

    classes: list[int]
    frozen: str | None = None
    heads: bool = False
    cells: list[int] = field(default_factory=list)

    @property
    def step(self) -> int:
        """The smallest number of channels that can leave together: the same share of every cell."""
        sizes = np.bincount(self.cells) if self.cells else np.array([len(self.classes)])
        return len(self.classes) // math.gcd(*sizes.tolist())


@dataclass(eq=False)
class Grouping:
    """Collects what is known per class, then forms groups."""

    trace: Trace
    classes: Classes
    taps: list[Tap]
    problems: list[tuple[Tensor, str]]

    def __post_init__(self) -> None:
        count = int(self.classes.channel.max()) + 1
        rng = np.random.default_rng(0)
        self.owner = _owners(self.trace)
        keys = rng.integers(1, 2**62, size=int(self.owner.max()) + 2)
        known = self.owner >= 0
        channel = self.classes.channel
        self.signature = np.zeros(count, dtype=np.int64)
        np.add.at(self.signature, channel[known].numpy(), keys[self.owner[known].numpy()])
        self.reasons = self._reasons([*self.trace.frozen, *self.problems], channel)
        self.relevant = torch.zeros(count, dtype=torch.bool)
        touched = [labels.reshape(-1) for labels in self.trace.produced]
        touched += [side.labels.reshape(-1) for read in self.trace.reads for side in read.sides]
        for labels in touched:
            self.relevant[channel[labels]] = True
        self.relevant[channel[0]] = False
        for labels in self.trace.parallel:
            self.relevant[channel[labels.reshape(-1)]] = False

    @staticmethod
    def _reasons(frozen: list[tuple[Tensor, str]], to: Tensor) -> dict[int, str]:
        reasons: dict[int, str] = {}
        for labels, reason in frozen:
            for number in to[labels].unique().tolist():
                reasons.setdefault(number, reason)
        return reasons

    def channels(self) -> list[Draft]:
        """Spaces of single channels."""
        groups: dict[tuple[int, str | None], Draft] = {}
        for number in torch.nonzero(self.relevant).reshape(-1).tolist():
            reason = self.reasons.get(number)
            key = (int(self.signature[number]), reason)
            groups.setdefault(key, Draft([], reason)).classes.append(number)
        drafts = list(groups.values())
        for draft in drafts:
            if len(draft.classes) == 1 and draft.frozen is None:
                draft.frozen = "all its channels are tied to each other"
        constraints = self._constraints()
        drafts = self._tie(drafts, constraints)
        for draft in drafts:
            self._divide(draft, constraints)
        return drafts

    def _constraints(self) -> list[tuple[Tensor, str]]:
        """Blocks of classes that must keep equally many; a block of one class needs nothing."""
        constraints = []
        for blocks, where in self.trace.balanced:
            numbers = self.classes.channel[blocks]
            if not bool((numbers == numbers[:, :1]).all()):
                constraints.append((numbers, where))
        return constraints

    def _tie(self, drafts: list[Draft], constraints: list[tuple[Tensor, str]]) -> list[Draft]:
        """Groups that make up for each other's share of a block become one space."""
        changed = True
        while changed:
            changed = False
            home = {number: index for index, draft in enumerate(drafts) for number in draft.classes}
            for numbers, where in constraints:
                uneven = _uneven(numbers, home)
                free = [index for index in uneven if index >= 0 and drafts[index].frozen is None]
                if not free:
                    continue
                if len(free) < len(uneven) or not _even_together(numbers, home, set(free)):
                    for index in free:
                        drafts[index].frozen = f"its blocks in {where} cannot shrink alike"
                    changed = True
                    continue
                if len(free) > 1:
                    merged = Draft([n for index in free for n in drafts[index].classes])
                    drafts = [d for i, d in enumerate(drafts) if i not in free] + [merged]
                    changed = True
                    break
        return drafts

    def _divide(self, draft: Draft, constraints: list[tuple[Tensor, str]]) -> None:
        """Number the cells: channels that play the same part in every constraint."""
        draft.classes.sort(key=self.first_label)
        if draft.frozen is not None:
            return
        part = dict.fromkeys(draft.classes, 0)
        rng = np.random.default_rng(1)
        for numbers, _ in constraints:
            keys = rng.integers(1, 2**40, size=len(numbers)).tolist()
            mine = torch.isin(numbers, torch.tensor(draft.classes))
            rows = torch.nonzero(mine)[:, 0].tolist()
            for row, number in zip(rows, numbers[mine].tolist(), strict=True):
                part[number] += keys[row]
        cell = {value: index for index, value in enumerate(dict.fromkeys(part.values()))}
        draft.cells = [cell[part[number]] for number in draft.classes]
        if draft.step == len(draft.classes) > 1:
            sizes = sorted(set(np.bincount(draft.cells).tolist()))
            named = " and ".join(str(size) for size in sizes[:3])
            draft.frozen = (
                f"its {max(draft.cells) + 1} blocks of {named} channels cannot shrink alike"
            )

    def first_label(self, number: int) -> int:
        """The first label of a class, which says where in the model it begins."""
        return int(self._firsts[number])

    @cached_property
    def _firsts(self) -> Tensor:
        """Per class, its first label."""
        count = int(self.classes.channel.max()) + 1
        firsts = torch.full((count,), self.trace.size)
        labels = torch.arange(self.trace.size)
        return firsts.scatter_reduce_(0, self.classes.channel, labels, "amin")

    def heads(self) -> tuple[list[Draft], Tensor]:
        """Spaces of whole slabs (attention heads), and per label the class of its slab or -1."""
        channel, fine = self.classes.channel, self.classes.fine
        units = {int(n) for labels in self.trace.parallel for n in channel[labels.reshape(-1)]}
        slab_of = torch.full((int(fine.max()) + 1,), -1)
        reasons: dict[int, str] = {n: self.reasons[n] for n in units if n in self.reasons}
        fine_reasons = self._reasons(self.trace.frozen, fine)
        for grid in self.trace.grids:
            for slab in grid.slabs:
                joint, labels = torch.broadcast_tensors(grid.joint, slab.labels)
                member, unit = fine[joint.reshape(-1)], channel[labels.reshape(-1)]
                mine = torch.isin(unit, torch.tensor(sorted(units), dtype=torch.long))
                member, unit = member[mine], unit[mine]
                clash = (slab_of[member] >= 0) & (slab_of[member] != unit)
                for number in unit[clash].unique().tolist():
                    reasons.setdefault(number, "its heads share channels")
                slab_of[member] = unit
        for number in torch.nonzero(slab_of >= 0).reshape(-1).tolist():
            if number in fine_reasons:
                reasons.setdefault(int(slab_of[number]), fine_reasons[number])
        labels_to_slab = slab_of[fine]
        own = torch.isin(channel, torch.tensor(sorted(units), dtype=torch.long))
        labels_to_slab = torch.where(own, channel, labels_to_slab)
        self._unread_heads(labels_to_slab, reasons)
        return self._head_drafts(reasons), labels_to_slab

    def _unread_heads(self, slab_of: Tensor, reasons: dict[int, str]) -> None:
        """Heads that a read adds up, where that read cannot absorb."""
        tapped = {(site.op, site.argument) for tap in self.taps for site in tap.sites}
        for read in self.trace.reads:
            if any((read.op, side.argument) in tapped for side in read.sides):
                continue
            for side in read.sides:
                for row in slab_of[side.aligned]:
                    several = row[row >= 0].unique().tolist()
                    if len(several) > 1:
                        for number in several:
                            reasons.setdefault(number, f"{read.op.where} cannot absorb T")

    def _head_drafts(self, reasons: dict[int, str]) -> list[Draft]:
        channel = self.classes.channel
        drafts: list[Draft] = []
        for labels in self.trace.parallel:
            numbers = set(channel[labels.reshape(-1)].tolist())
            met = [draft for draft in drafts if numbers & set(draft.classes)]
            merged = sorted(
                numbers.union(*(set(draft.classes) for draft in met)), key=self.first_label
            )
            drafts = [draft for draft in drafts if draft not in met]
            drafts.append(Draft(merged, heads=True, cells=[0] * len(merged)))
        for draft in drafts:
            draft.frozen = next((reasons[n] for n in draft.classes if n in reasons), None)
        return [draft for draft in drafts if len(draft.classes) > 1]


def _owners(trace: Trace) -> Tensor:
    """Per label, the number of the (weight, dim) it was born in, or -1."""
    owner = torch.full((trace.size,), -1)
    number = 0
    for value in trace.weights.values():
        for labelling in value.labellings:
            owner[labelling.labels.reshape(-1)] = number
            number += 1
    return owner


def _counts(numbers: Tensor, home: dict[int, int]) -> dict[int, list[int]]:
    """Per group (-1 for none), how many members each block has."""
    counts: dict[int, list[int]] = {}
    for row, block in enumerate(numbers.tolist()):
        for number in block:
            counts.setdefault(home.get(number, -1), [0] * len(numbers))[row] += 1
    return counts


def _uneven(numbers: Tensor, home: dict[int, int]) -> list[int]:
    return [index for index, own in _counts(numbers, home).items() if len(set(own)) > 1]


def _even_together(numbers: Tensor, home: dict[int, int], groups: set[int]) -> bool:
    counts = [own for index, own in _counts(numbers, home).items() if index in groups]
    return len({sum(column) for column in zip(*counts, strict=True)}) == 1
