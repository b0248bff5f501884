"""Whether a network treats a large batch as it treats the examples in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from interpress.graph.example import Example

_TOLERANCE = 1e-4  # relative; products of more rows round differently


def same_for_each_batch(
    exact: Callable[..., Any], flexible: Callable[..., Any], batches: Sequence[Example]
) -> bool:
    """Return whether `flexible` gives for all batches together what `exact` gives for each.

    Batches are joined along the first dim of every tensor.
    """
    leaves = [pytree.tree_leaves((batch.args, dict(batch.kwargs))) for batch in batches]
    joined = [
        torch.cat(values) if isinstance(values[0], Tensor) else values[0]
        for values in zip(*leaves, strict=True)
    ]
    spec = pytree.tree_structure((batches[0].args, dict(batches[0].kwargs)))
    args, kwargs = pytree.tree_unflatten(joined, spec)
    try:
        with torch.no_grad():
            each = [pytree.tree_leaves(exact(*b.args, **b.kwargs)) for b in batches]
            together = pytree.tree_leaves(flexible(*args, **kwargs))
    except Exception:  # code that was not written for it may fail in any way
        return False
    return all(
        _equal(both, torch.cat(parts)) if isinstance(both, Tensor) else both == parts[0]
        for both, *parts in zip(together, *each, strict=True)
    )


def _equal(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    return bool((a - b).norm() <= _TOLERANCE * b.norm())
