"""Group channels into spaces, and divide each space into cells."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from interpress.labels.trace import Trace
from interpress.spaces.classes import Classes, head_classes
from interpress.spaces.taps import Tap

_Constraint = tuple[Tensor, str]
"""Classes as (blocks, members), and the operator for which all blocks keep equally many."""


@dataclass
class Draft:
    """A space before it is described: its channels (classes), their cells, a reason if frozen."""

    classes: list[int]
    frozen: str | None = None
    level: int = 0
    """0 for channels, 1 for heads, 2 for heads within groups that share a head."""
    cells: list[int] = field(default_factory=list)

    @property
    def ending(self) -> str:
        """The end of the space's name."""
        if self.level == 0:
            return ""
        return ":heads-per-group" if self.is_in_groups else ":heads"

    @property
    def is_in_groups(self) -> bool:
        """Whether the space has the heads of several groups."""
        return self.level == 2 and len(set(self.cells)) > 1

    @property
    def step(self) -> int:
        """The fewest channels that can be removed: the same share of every cell."""
        sizes = np.bincount(self.cells) if self.cells else np.array([len(self.classes)])
        return len(self.classes) // math.gcd(*sizes.tolist())


@dataclass(eq=False)
class Grouping:
    """Forms spaces from classes of labels.

    `signature` has the same number for classes that occur in the same weights, along the same
    dims, equally often. `relevant` marks classes that a product makes or reads. `reasons` says why
    a class is frozen.
    """

    trace: Trace
    classes: Classes
    taps: list[Tap]
    problems: list[tuple[Tensor, str]]
    """Labels that cannot be removed alone, and why; see `TapFinder.problems`."""

    def __post_init__(self) -> None:
        channel = self.classes.channel
        count = int(channel.max()) + 1
        self.signature = self._signatures(count)
        self.reasons = reasons_by_class([*self.trace.frozen, *self.problems], channel)
        self.relevant = torch.zeros(count, dtype=torch.bool)
        product_labels = [labels.reshape(-1) for labels in self.trace.produced]
        product_labels += [
            side.labels.reshape(-1) for read in self.trace.reads for side in read.sides
        ]
        for labels in product_labels:
            self.relevant[channel[labels]] = True
        self.relevant[channel[0]] = False
        self.relevant[head_classes(self.trace, channel)] = False

    def _signatures(self, count: int) -> NDArray[np.int64]:
        """Return, per class, the sum of random numbers drawn for the dims of weights it is in."""
        rng = np.random.default_rng(0)
        owner = _owning_dims(self.trace)
        keys = rng.integers(1, 2**62, size=int(owner.max()) + 2)
        owned = owner >= 0
        signature = np.zeros(count, dtype=np.int64)
        np.add.at(signature, self.classes.channel[owned].numpy(), keys[owner[owned].numpy()])
        return signature

    def channels(self) -> list[Draft]:
        """Return the spaces of single channels."""
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
        drafts = self._merge_unequal(drafts, constraints)
        blocks = self.blocks(constraints)
        for draft in drafts:
            self.divide_into_cells(draft, blocks)
        return drafts

    def _constraints(self) -> list[_Constraint]:
        """Return the blocks that must keep equally many classes.

        A constraint in which every block is a single class always holds and is left out.
        """
        constraints = []
        for blocks, where in self.trace.balanced:
            numbers = self.classes.channel[blocks]
            if not bool((numbers == numbers[:, :1]).all()):
                constraints.append((numbers, where))
        return constraints

    def _merge_unequal(self, drafts: list[Draft], constraints: list[_Constraint]) -> list[Draft]:
        """Merge spaces that fill the blocks of a constraint equally only together."""
        changed = True
        while changed:
            changed = False
            draft_of = {
                number: index for index, draft in enumerate(drafts) for number in draft.classes
            }
            for numbers, where in constraints:
                uneven = _uneven(numbers, draft_of)
                free = [index for index in uneven if index >= 0 and drafts[index].frozen is None]
                if not free:
                    continue
                if len(free) < len(uneven) or not _even_together(numbers, draft_of, set(free)):
                    for index in free:
                        drafts[index].frozen = f"its blocks in {where} cannot keep the same share"
                    changed = True
                    continue
                if len(free) > 1:
                    merged = Draft([n for index in free for n in drafts[index].classes])
                    drafts = [d for i, d in enumerate(drafts) if i not in free] + [merged]
                    changed = True
                    break
        return drafts

    def blocks(self, constraints: list[_Constraint]) -> NDArray[np.int64]:
        """Return, per class, the sum of random numbers drawn for the blocks it is in."""
        rng = np.random.default_rng(1)
        blocks = np.zeros(len(self.relevant), dtype=np.int64)
        for numbers, _ in constraints:
            keys = rng.integers(1, 2**40, size=len(numbers))
            np.add.at(blocks, numbers.numpy(), keys.reshape(-1, *(1,) * (numbers.ndim - 1)))
        return blocks

    def divide_into_cells(self, draft: Draft, blocks: NDArray[np.int64]) -> None:
        """Put channels that are in the same block of every constraint into one cell."""
        draft.classes.sort(key=self.first_label)
        if draft.frozen is not None:
            return
        keys = blocks[draft.classes].tolist()
        cell = {key: index for index, key in enumerate(dict.fromkeys(keys))}
        draft.cells = [cell[key] for key in keys]
        if draft.step == len(draft.classes) > 1:
            sizes = sorted(set(np.bincount(draft.cells).tolist()))
            named = " and ".join(str(size) for size in sizes[:3])
            draft.frozen = (
                f"its {max(draft.cells) + 1} blocks of {named} channels cannot keep the same share"
            )

    def first_label(self, number: int) -> int:
        """Return the first label of a class, which says where in the model the class begins."""
        return int(self._first_labels[number])

    @cached_property
    def _first_labels(self) -> Tensor:
        count = int(self.classes.channel.max()) + 1
        first = torch.full((count,), self.trace.size)
        labels = torch.arange(self.trace.size)
        return first.scatter_reduce_(0, self.classes.channel, labels, "amin")


def reasons_by_class(frozen: list[tuple[Tensor, str]], class_of: Tensor) -> dict[int, str]:
    """Return the first reason of every class that has a frozen label."""
    reasons: dict[int, str] = {}
    for labels, reason in frozen:
        for number in class_of[labels].unique().tolist():
            reasons.setdefault(number, reason)
    return reasons


def _owning_dims(trace: Trace) -> Tensor:
    """Return, per label, the number of the weight's dim it was created for, or -1."""
    owner = torch.full((trace.size,), -1)
    number = 0
    for value in trace.weights.values():
        for labelling in value.labellings:
            owner[labelling.labels.reshape(-1)] = number
            number += 1
    return owner


def _counts(numbers: Tensor, draft_of: dict[int, int]) -> dict[int, list[int]]:
    """Return, per draft (-1 for none), its number of members in each block."""
    counts: dict[int, list[int]] = {}
    for row, block in enumerate(numbers.tolist()):
        for number in block:
            counts.setdefault(draft_of.get(number, -1), [0] * len(numbers))[row] += 1
    return counts


def _uneven(numbers: Tensor, draft_of: dict[int, int]) -> list[int]:
    """Return the drafts that do not have equally many members in all blocks."""
    counts = _counts(numbers, draft_of)
    return [index for index, per_block in counts.items() if len(set(per_block)) > 1]


def _even_together(numbers: Tensor, draft_of: dict[int, int], group: set[int]) -> bool:
    """Return whether some drafts together have equally many members in all blocks."""
    counts = [
        per_block for index, per_block in _counts(numbers, draft_of).items() if index in group
    ]
    return len({sum(column) for column in zip(*counts, strict=True)}) == 1
