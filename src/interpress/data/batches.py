"""Batches of examples: count, select, split and merge them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from interpress.errors import DataError
from interpress.graph.example import Example


def batch_size(example: Example) -> int:
    """Return how many examples a batch holds: the first dim of its first tensor."""
    sizes = [tensor.shape[0] for tensor in example.tensors() if tensor.ndim]
    if not sizes or sizes[0] == 0:
        raise DataError("a calibration batch holds no example; give tensors with a batch dim")
    return sizes[0]


def take(example: Example, index: Tensor) -> Example:
    """Return some examples of a batch; tensors without the batch dim are shared."""
    size = batch_size(example)

    def chosen(tensor: Tensor) -> Tensor:
        if tensor.ndim == 0 or tensor.shape[0] != size:
            return tensor
        return tensor[index.to(tensor.device)]

    return example.map(chosen)


def split_batch(example: Example, most: int | None) -> list[Example]:
    """Split a batch into the fewest equal batches of at most `most` examples."""
    size = batch_size(example)
    if most is None or size <= most:
        return [example]
    length = -(-size // -(-size // most))

    def part(start: int) -> Example:
        return example.map(
            lambda t: t[start : start + length] if t.ndim and t.shape[0] == size else t
        )

    return [part(start) for start in range(0, size, length)]


def merge_batches(examples: list[Example]) -> Example:
    """Return several batches as one."""
    if len(examples) == 1:
        return examples[0]
    sizes = [batch_size(example) for example in examples]
    trees = [pytree.tree_flatten((e.args, dict(e.kwargs))) for e in examples]

    def joined(*leaves: Any) -> Any:
        batched = all(
            isinstance(leaf, Tensor) and leaf.ndim and leaf.shape[0] == size
            for leaf, size in zip(leaves, sizes, strict=True)
        )
        return torch.cat(leaves) if batched else leaves[0]

    leaves = [joined(*column) for column in zip(*(leaves for leaves, _ in trees), strict=True)]
    args, kwargs = pytree.tree_unflatten(leaves, trees[0][1])
    masks = zip(*(example.masks for example in examples), strict=True)
    joined_masks = tuple(torch.cat(parts) for parts in masks)
    return replace(examples[0], args=args, kwargs=kwargs, masks=joined_masks)


def can_merge(first: Example, second: Example) -> bool:
    """Return whether two batches differ in nothing but their examples and their number."""
    layouts = _layout(first), _layout(second)
    shared = any(isinstance(entry, tuple) and entry[0] is None for entry in layouts[0])
    return not shared and layouts[0] == layouts[1]


def _layout(example: Example) -> list[Any]:
    """Per leaf: the shape of one example (None if the batch dim is missing) and the dtype."""
    size = batch_size(example)
    return [
        (leaf.shape[1:] if leaf.ndim and leaf.shape[0] == size else None, leaf.dtype)
        if isinstance(leaf, Tensor)
        else leaf
        for leaf in [
            *pytree.tree_leaves((example.args, dict(example.kwargs))),
            *example.masks,
        ]
    ]
