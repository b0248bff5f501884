"""Calibration data of several processes: the same data in all, or a shard in each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from interpress.parallel.processes import Processes


def joined(source: Iterable[Any], processes: Processes) -> Iterable[Any]:
    """Return the batches of all processes, which every process then has.

    If all processes have the same data, these are returned as they are. Otherwise every process has
    a shard, and the shards are put one after the other. A shard may be empty.
    """
    if processes.size == 1:
        return source
    digest, count = hashlib.sha256(), 0
    for batch in source:
        count += 1
        for leaf in pytree.tree_leaves(batch):
            _add(digest, leaf)
    digests = processes.gathered((count, digest.hexdigest()))
    if len(set(digests)) == 1:
        return source
    batches = [pytree.tree_map(_to_cpu, batch) for batch in source] if count else []
    return [batch for shard in processes.gathered(batches) for batch in shard]


def _add(digest: Any, leaf: Any) -> None:
    if isinstance(leaf, Tensor):
        digest.update(f"{leaf.dtype} {tuple(leaf.shape)}".encode())
        if leaf.numel():
            flat = leaf.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().tobytes())
    else:
        digest.update(repr(leaf).encode())


def _to_cpu(leaf: Any) -> Any:
    return leaf.detach().cpu() if isinstance(leaf, Tensor) else leaf
