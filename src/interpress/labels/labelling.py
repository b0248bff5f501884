"""Label tensors: which channel does each element of a tensor belong to?

A **layer** is an integer tensor that broadcasts against the value it describes: equal numbers mean
the same channel, so a batch of images `(B, C, H, W)` has one layer of shape `(1, C, 1, 1)`, a
weight `(out, in)` two, of shapes `(out, 1)` and `(1, in)`. Data movement (view, permute, cat, ...)
is followed by moving the layers in the same way, which is what makes reshapes and shuffles exact.

When one dim is split in two, say channels into `(heads, head_dim)`, the layer comes to span both
dims. Each of the two then also gets a **slab** layer, one label per index of that dim, so that
"drop head 3" and "drop dimension 7 of head 3" can both be said.
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
    """One label per element, broadcast over the dims it does not depend on."""

    labels: Tensor
    slab: bool = False
    inner: bool = False
    """Of a slab: whether its dim varies fastest, the one that single channels may leave."""

    @property
    def support(self) -> tuple[int, ...]:
        """The dims along which the label varies."""
        return tuple(dim for dim, size in enumerate(self.labels.shape) if size > 1)

    def moved(self, labels: Tensor) -> Labelling:
        """The same layer with its labels elsewhere."""
        return replace(self, labels=collapse(labels))


Labellings = tuple[Labelling, ...]


def collapse(labels: Tensor) -> Tensor:
    """Labels with every dim along which they are constant shrunk to size one."""
    for dim, size in enumerate(labels.shape):
        if size > 1:
            first = labels.narrow(dim, 0, 1)
            if bool((labels == first).all()):
                labels = first
    return labels


def tidy(labellings: Sequence[Labelling]) -> Labellings:
    """Layers that still vary somewhere, each only once."""
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
    """The labels of a value of shape `old` after it is viewed as `new`."""
    expanded: list[int] = []
    final: list[int] = []
    for source, target in _blocks(old, new):
        varies = any(labels.shape[dim] > 1 for dim in source)
        expanded += [old[dim] if varies else 1 for dim in source]
        final += [new[dim] if varies else 1 for dim in target]
    return collapse(labels.expand(expanded).reshape(final))


def merged_dims(old: Sequence[int], new: Sequence[int]) -> list[list[int]]:
    """Groups of dims of `old` that end up in common dims of `new`."""
    return [source for source, _ in _blocks(old, new)]


def _blocks(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Smallest runs of dims with equal products: within each, elements stay in order."""
    blocks = []
    i = j = 0
    while i < len(old) or j < len(new):
        source, target = [i] if i < len(old) else [], [j] if j < len(new) else []
        i, j = i + len(source), j + len(target)
        while math.prod(old[k] for k in source) != math.prod(new[k] for k in target):
            if math.prod(old[k] for k in source) < math.prod(new[k] for k in target):
                source.append(i)
                i += 1
            else:
                target.append(j)
                j += 1
        blocks.append((source, target))
    return blocks


def along(labels: Tensor, ndim: int) -> Tensor:
    """Labels with leading dims added, as broadcasting does."""
    return labels.reshape((1,) * (ndim - labels.ndim) + tuple(labels.shape))
