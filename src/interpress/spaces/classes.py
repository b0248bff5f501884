"""From labels that are the same to channels: connected components of what the rules united."""

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
    channel = fine
    united: dict[int, tuple[Tensor, Tensor]] = {}
    while True:
        whole = _attached(trace, channel, is_slab)
        parallel = torch.zeros_like(whole)
        for labels in trace.parallel:
            parallel[channel[labels.reshape(-1)]] = True
        before = len(united)
        for number, grid in enumerate(trace.grids):
            slab = _leaving_whole(grid, channel, whole, parallel)
            if slab is not None and number not in united:
                joint, label = torch.broadcast_tensors(grid.joint, slab.labels)
                united[number] = (joint.reshape(-1), label.reshape(-1))
        if len(united) == before:
            return Classes(fine, channel, is_slab)
        channel = _components(trace.size, edges + list(united.values()))


def _leaving_whole(
    grid: Grid, channel: Tensor, whole: Tensor, parallel: Tensor
) -> Labelling | None:
    """The slab of a grid whose members can only leave together, if there is one.

    Usually single channels leave along the innermost dim. Where that dim numbers heads, as in
    `(dims, heads)`, only whole slabs of another dim can.
    """
    inner = next((slab for slab in grid.slabs if slab.inner), None)
    if inner is None:
        return None
    if not bool(parallel[channel[inner.labels]].any()):
        return inner if bool(whole[channel[inner.labels]].any()) else None
    others = [s for s in grid.slabs if not bool(parallel[channel[s.labels]].any())]
    return others[-1] if others else None


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
    program = coo_matrix((np.ones(len(rows), dtype=np.int8), (rows, cols)), shape=(size, size))
    _, component = connected_components(program, directed=False)
    return torch.from_numpy(component.astype(np.int64))
