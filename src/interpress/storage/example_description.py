"""The shapes, dtypes and value ranges of an example, so that a similar one can be drawn later."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from interpress.graph.example import Example

_LARGEST = 2**28  # numbers in one tensor; a larger description is damaged


def describe(example: Example) -> dict[str, Any]:
    """Return a description of an example, without its values."""
    args, kwargs = pytree.tree_map(_described, (list(example.args), dict(example.kwargs)))
    return {"args": args, "kwargs": kwargs}


def _described(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return {"value": leaf}
    plain = leaf.double() if leaf.is_floating_point() else leaf.long()
    span = [plain.min().item(), plain.max().item()] if leaf.numel() else [0, 1]
    return {"shape": list(leaf.shape), "dtype": str(leaf.dtype)[6:], "range": span}


def random_example(description: Any, device: torch.device) -> Example:
    """Return an example of that description, drawn with a fixed seed."""
    generator = torch.Generator().manual_seed(0)

    def draw(node: Any) -> Any:
        if isinstance(node, dict) and "dtype" in node:
            dtype, shape = getattr(torch, node["dtype"]), [int(size) for size in node["shape"]]
            if not isinstance(dtype, torch.dtype) or math.prod(shape) > _LARGEST:
                raise ValueError(f"an example of {node['dtype']} with shape {shape}")
            low, high = node["range"]
            if dtype.is_floating_point:
                uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
                return (low + (high - low) * uniform).to(device, dtype)
            return torch.randint(low, high + 1, shape, generator=generator).to(device, dtype)
        if isinstance(node, dict) and set(node) == {"value"}:
            return node["value"]
        if isinstance(node, dict):
            return {key: draw(value) for key, value in node.items()}
        return [draw(value) for value in node]

    return Example(tuple(draw(description["args"])), draw(description["kwargs"]))
