"""Merge labels into channels: connected components of the labels that operators united."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from interpress.labels.labelling import Labelling
from interpress.labels.trace import Grid, Trace


@dataclass(frozen=True, eq=False)
class Classes:
    """The class of every label, at three levels. A class is a number.

    `strand` unites the labels that operators united. `fine` also unites copies of a channel, such
    as those of a value that several query heads read. `channel` also unites the members of every
    slab that can only be removed as a whole, such as one dim of all heads if the heads share a
    scale.
    """

    strand: Tensor
    fine: Tensor
    channel: Tensor
    is_slab: Tensor
    """Per label, whether it names a slab."""


def classify(trace: Trace) -> Classes:
    """Return the classes of the trace's labels."""
    is_slab = torch.zeros(trace.size, dtype=torch.bool)
    for labels in trace.slab_ids:
        is_slab[labels] = True
    strand = united(trace)
    edges = _edges(trace) + [(copies.copied[0], copies.copied[1]) for copies in trace.copies]
    fine = _components(trace.size, edges)
    channel = fine
    slab_edges: dict[int, tuple[Tensor, Tensor]] = {}
    while True:  # uniting one slab can force another to be removed as a whole
        whole = _removed_whole(trace, channel, is_slab)
        parallel = torch.zeros_like(whole)
        parallel[head_classes(trace, channel)] = True
        before = len(slab_edges)
        for number, grid in enumerate(trace.grids):
            slab = _slab_removed_whole(grid, channel, whole, parallel)
            if slab is not None and number not in slab_edges:
                joint, label = torch.broadcast_tensors(grid.joint, slab.labels)
                slab_edges[number] = (joint.reshape(-1), label.reshape(-1))
        if len(slab_edges) == before:
            return Classes(strand, fine, channel, is_slab)
        channel = _components(trace.size, edges + list(slab_edges.values()))


def united(trace: Trace) -> Tensor:
    """Return the class of every label, by what operators united."""
    return _components(trace.size, _edges(trace))


def _edges(trace: Trace) -> list[tuple[Tensor, Tensor]]:
    return [(a, b) for a, b in trace.united if a.numel()]


def head_classes(trace: Trace, class_of: Tensor) -> Tensor:
    """Return the classes of slabs that index independent products, and of their groups."""
    labels = [torch.zeros(0, dtype=torch.long), *(part.reshape(-1) for part in trace.parallel)]
    heads = class_of[torch.cat(labels)].unique()
    groups = [
        class_of[copies.groups]
        for copies in trace.copies
        if copies.groups is not None and bool(torch.isin(class_of[copies.members], heads).any())
    ]
    return torch.cat([heads, *groups]).unique()


def _slab_removed_whole(
    grid: Grid, channel: Tensor, whole: Tensor, parallel: Tensor
) -> Labelling | None:
    """Return the slabs of a grid whose members can only be removed together, if there are any.

    Single channels can usually be removed along the innermost dim. If that dim indexes heads, as
    in `(dims, heads)`, only whole slabs of another dim can be removed.
    """
    inner = next((slab for slab in grid.slabs if slab.inner), None)
    if inner is None:
        return None
    if not bool(parallel[channel[inner.labels]].any()):
        return inner if bool(whole[channel[inner.labels]].any()) else None
    not_parallel = [s for s in grid.slabs if not bool(parallel[channel[s.labels]].any())]
    return not_parallel[-1] if not_parallel else None


def _removed_whole(trace: Trace, channel: Tensor, is_slab: Tensor) -> Tensor:
    """Return, per class, whether its slabs can only be removed as a whole.

    That is so if the class has a label that is not a slab, or if an operator said so.
    """
    whole = torch.zeros(int(channel.max()) + 1, dtype=torch.bool)
    whole[channel[1:][~is_slab[1:]]] = True
    for labels in [*trace.attached, *(labels for labels, _ in trace.frozen)]:
        whole[channel[labels]] = True
    return whole


def _components(size: int, edges: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the connected component of each of `size` labels."""
    if not edges:
        return torch.arange(size)
    rows = torch.cat([a for a, _ in edges]).numpy()
    columns = torch.cat([b for _, b in edges]).numpy()
    values = np.ones(len(rows), dtype=np.int8)
    adjacency = coo_matrix((values, (rows, columns)), shape=(size, size))
    _, component = connected_components(adjacency, directed=False)
    return torch.from_numpy(component.astype(np.int64))
