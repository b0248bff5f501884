"""From labels that are the same to channels: connected components of what the rules united."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from interpress.graph.trace import Trace


@dataclass(frozen=True, eq=False)
class Classes:
    """The channel of every label, at two grains.

    `fine` unites only what operators united. `channel` also unites the members of slabs that can
    only leave as a whole, such as one dimension of all heads that share a scale.
    """

    fine: Tensor
    channel: Tensor
    is_slab: Tensor
    """Per label, whether it names a slab."""


def classify(trace: Trace) -> Classes:
    """The components of the trace's labels."""
    is_slab = torch.zeros(trace.size, dtype=torch.bool)
    for ids in trace.slab_ids:
        is_slab[ids] = True
    edges = [(a, b) for a, b in trace.same if a.numel()]
    fine = _components(trace.size, edges)
    channel, joined = fine, 0
    while True:
        whole = _attached(trace, channel, is_slab)
        extra = []
        for grid in trace.grids:
            for slab in grid.slabs:
                if slab.inner and bool(whole[channel[slab.labels]].any()):
                    joint, label = torch.broadcast_tensors(grid.joint, slab.labels)
                    extra.append((joint.reshape(-1), label.reshape(-1)))
        if len(extra) == joined:
            return Classes(fine, channel, is_slab)
        joined = len(extra)
        channel = _components(trace.size, edges + extra)


def _attached(trace: Trace, channel: Tensor, is_slab: Tensor) -> Tensor:
    """Per class, whether its slabs may only leave whole: something else is tied to them."""
    whole = torch.zeros(int(channel.max()) + 1, dtype=torch.bool)
    whole[channel[1:][~is_slab[1:]]] = True
    for labels in [*trace.attached, *(labels for labels, _ in trace.frozen)]:
        whole[channel[labels]] = True
    return whole


def _components(size: int, edges: list[tuple[Tensor, Tensor]]) -> Tensor:
    if not edges:
        return torch.arange(size)
    rows = torch.cat([a for a, _ in edges]).numpy()
    cols = torch.cat([b for _, b in edges]).numpy()
    graph = coo_matrix((np.ones(len(rows), dtype=np.int8), (rows, cols)), shape=(size, size))
    _, component = connected_components(graph, directed=False)
    return torch.from_numpy(component.astype(np.int64))
