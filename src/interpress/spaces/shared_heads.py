"""Heads that several others share: which members every group has.

Keys and values of grouped queries are repeated (`labels.copies`): G groups of M members each.
Before labels become classes, it is decided whether the members are attention heads at all, and
groups with the same members are united, as those of keys and of values.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from interpress.labels.trace import Copies, Trace


def settle_copies(trace: Trace, class_of: Tensor) -> None:
    """Unite groups that have members in common; undo what does not repeat attention heads.

    `class_of` has the class of every label, by what operators united. Where the members are no
    heads, a slab can only be removed with all its repetitions.
    """
    group_of: dict[int, Tensor] = {}
    for copies in trace.copies:
        if not is_of_heads(trace, copies, class_of):
            if copies.groups is None:
                trace.freeze(copies.members, f"{copies.where} repeats it a fixed number of times")
            else:
                trace.unite(copies.members, copies.groups[:, None], "")
            continue
        if copies.groups is None:
            continue
        for member, group in _pairs(copies, class_of):
            if member in group_of:
                trace.unite(group_of[member], group, "")
            group_of[member] = group


def is_of_heads(trace: Trace, copies: Copies, class_of: Tensor) -> bool:
    """Return whether the members index independent products, as attention heads do."""
    if not trace.parallel:
        return False
    heads = torch.cat([labels.reshape(-1) for labels in trace.parallel])
    return bool(torch.isin(class_of[copies.members], class_of[heads]).any())


def _pairs(copies: Copies, class_of: Tensor) -> Iterator[tuple[int, Tensor]]:
    assert copies.groups is not None
    for group, members in zip(copies.groups, class_of[copies.members].tolist(), strict=True):
        yield from ((member, group) for member in members)
