"""The values of frames as tensors and a record, to save and restore them to the same bits.

The strides of a tensor are kept as well: kernels may round differently for another layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from interpress.graph.executor import Frame
from interpress.graph.program import Program

Groups = Mapping[str, tuple[Program, Sequence[Frame]]]
"""Frames by the name of the network that they belong to, with its program."""


def to_record(groups: Groups) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of all frames, and what JSON can hold of the rest."""
    tensors: dict[str, Tensor] = {}
    record: dict[str, Any] = {}
    for group, (_, frames) in groups.items():
        record[group] = [
            {
                node.name: _value_record(value, f"{group}/{number}/{node.name}", tensors)
                for node, value in frame.values.items()
            }
            for number, frame in enumerate(frames)
        ]
    return tensors, record


def restore(groups: Groups, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    """Give frames the values that were saved; they are then on the CPU."""
    for group, (program, frames) in groups.items():
        nodes = {node.name: node for node in program.nodes}
        for frame, entries in zip(frames, record[group], strict=True):
            frame.values.clear()
            for name, (leaves, spec) in entries.items():
                values = [_restored(leaf, tensors) for leaf in leaves]
                tree = pytree.treespec_loads(spec)
                frame.values[nodes[name]] = pytree.tree_unflatten(values, tree)


def _value_record(value: Any, key: str, tensors: dict[str, Tensor]) -> list[Any]:
    leaves, spec = pytree.tree_flatten(value)
    entries: list[Any] = []
    for index, leaf in enumerate(leaves):
        if not isinstance(leaf, Tensor):
            entries.append(leaf)
            continue
        name = f"{key}/{index}"
        tensors[name] = _without_repeats(leaf)
        entries.append({"tensor": name, "shape": list(leaf.shape), "stride": list(leaf.stride())})
    return [entries, pytree.treespec_dumps(spec)]


def _without_repeats(tensor: Tensor) -> Tensor:
    """Return one entry of every dim along which an expanded tensor repeats the same memory."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _restored(leaf: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(leaf, dict):
        return leaf
    saved, strides = tensors[leaf["tensor"]], leaf["stride"]
    restored = torch.empty_strided(saved.shape, strides, dtype=saved.dtype).copy_(saved)
    return restored.expand(leaf["shape"])
