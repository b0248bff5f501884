"""Label tensors: which channel does each element of a tensor belong to?

A **labelling** is an integer tensor that broadcasts against the value it describes. Equal labels
mean the same channel. A batch of images `(B, C, H, W)` has one labelling of shape `(1, C, 1, 1)`; a
weight `(out, in)` has two, of shapes `(out, 1)` and `(1, in)`. An operator that moves data (view,
permute, cat, ...) moves the labels in the same way, so reshapes and shuffles are followed exactly.

When a view splits one dim into two, such as channels into `(heads, head_dim)`, the labelling spans
both dims. Each of the two dims then also gets a **slab** labelling with one label per index of that
dim. "Drop head 3" and "drop dimension 7 of head 3" can then both be expressed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

FIXED = 0
"""The label of elements that belong to no channel: inputs, constants, positions."""


@dataclass(frozen=True)
class Labelling:
    """One label per element, broadcast over the dims along which it is constant."""

    labels: Tensor
    slab: bool = False
    inner: bool = False
    """For a slab: whether its dim varies fastest. Single channels are dropped along this dim."""
    counts: bool = False
    """For a slab: whether its dim only counts the members of groups; see `labels.copies`."""

    @property
    def support(self) -> tuple[int, ...]:
        """The dims along which the label varies."""
        return tuple(dim for dim, size in enumerate(self.labels.shape) if size > 1)

    def moved(self, labels: Tensor) -> Labelling:
        """Return the same labelling with these labels, collapsed."""
        return replace(self, labels=collapse(labels))


Labellings = tuple[Labelling, ...]


def collapse(labels: Tensor) -> Tensor:
    """Return the labels with every dim along which they are constant reduced to size one."""
    for dim, size in enumerate(labels.shape):
        if size > 1:
            first = labels.narrow(dim, 0, 1)
            if bool((labels == first).all()):
                labels = first
    return labels


def tidy(labellings: Sequence[Labelling]) -> Labellings:
    """Return the labellings without duplicates and without those that vary along no dim."""
    kept: list[Labelling] = []
    for labelling in labellings:
        duplicate = any(
            other.labels.shape == labelling.labels.shape
            and torch.equal(other.labels, labelling.labels)
            for other in kept
        )
        if labelling.support and not duplicate:
            kept.append(labelling)
    return tuple(kept)


def reshape(labels: Tensor, old: Sequence[int], new: Sequence[int]) -> Tensor:
    """Return the labels of a value of shape `old` after it is viewed as `new`."""
    expanded: list[int] = []
    final: list[int] = []
    for source, target in _blocks(old, new):
        varies = any(labels.shape[dim] > 1 for dim in source)
        expanded += [old[dim] if varies else 1 for dim in source]
        final += [new[dim] if varies else 1 for dim in target]
    return collapse(labels.expand(expanded).reshape(final))


def merged_dims(old: Sequence[int], new: Sequence[int]) -> list[list[int]]:
    """Return groups of dims of `old` whose elements stay together in dims of `new`."""
    return [source for source, _ in _blocks(old, new)]


def _blocks(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Return the shortest runs of dims of `old` and `new` that have equal products."""
    blocks = []
    i = j = 0  # the next dim of `old` and of `new`
    while i < len(old) or j < len(new):
        source, target = [i] if i < len(old) else [], [j] if j < len(new) else []
        i, j = i + len(source), j + len(target)
        while math.prod(old[dim] for dim in source) != math.prod(new[dim] for dim in target):
            if math.prod(old[dim] for dim in source) < math.prod(new[dim] for dim in target):
                source.append(i)
                i += 1
            else:
                target.append(j)
                j += 1
        blocks.append((source, target))
    return blocks


def along(labels: Tensor, ndim: int) -> Tensor:
    """Return the labels with leading dims of size one, as broadcasting to `ndim` dims adds them."""
    return labels.reshape((1,) * (ndim - labels.ndim) + tuple(labels.shape))
