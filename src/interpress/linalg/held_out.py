"""Errors on rows that were not fitted, for consumers whose blocks of inputs are dropped in order.

The weights of the kept inputs are solved on one half of the rows and judged on the other half. One
Cholesky factorisation, in the order of the blocks, serves every number of kept blocks: the factor
of the first inputs is its leading block.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from interpress.linalg.elimination import RIDGE, Consumer

_SKETCH = 64  # random combinations of a consumer's outputs that stand for all of them


def held_out_errors(consumer: Consumer, order: Tensor, kept: Sequence[int]) -> Tensor:
    """Return the error with the first `kept` blocks of `order`, relative to `energy`.

    It is fitted to one half and judged on the other, in both directions.
    """
    assert consumer.halves is not None
    inputs = _in_order(consumer, order)
    sizes = (consumer.blocks >= 0).sum(1).cpu()[order.cpu()]
    fixed = len(inputs) - int(sizes.sum())
    U = _sketched(consumer.U)
    counts = [fixed + int(sizes[:k].sum()) for k in kept]
    errors = torch.zeros(len(counts), dtype=torch.float64)
    halves = consumer.halves(0)  # and those of the other half
    for fitted, judged in (halves, halves[::-1]):
        lost = _lost(fitted.index_select(0, inputs).index_select(1, inputs), U[inputs], counts)
        in_place = torch.empty_like(lost).index_copy_(0, inputs, lost)
        products = (in_place * torch.mm(judged, in_place.flatten(1)).reshape(lost.shape)).sum(
            (0, 2), dtype=torch.float64
        )
        errors += products.cpu().clamp(min=0) / (2 * consumer.energy)
    return errors


def _lost(system: Tensor, U: Tensor, counts: Sequence[int]) -> Tensor:
    """Return (inputs, counts, outputs): weights `U`, less those of the first inputs solved again.

    `system` has the second moments of the inputs, and is overwritten. With `system = L @ L.T` and
    only the first inputs kept, their weights change by `L[k, k].T^-1 @ L[d, k].T @ U[d]`, where k
    are these inputs and d are the others. `L.T` is upper triangular, so with zeros in the rows of d
    one solve with all of `L.T` serves every number of kept inputs.
    """
    ridge = RIDGE * float(system.diagonal().mean().clamp(min=1e-30))
    while True:
        system.diagonal().add_(ridge)
        lower, failed = torch.linalg.cholesky_ex(system)
        if not int(failed):
            break
        ridge *= 10
    sides = U.new_zeros(len(U), len(counts), U.shape[1])
    for number, count in enumerate(counts):
        sides[:count, number] = lower[count:, :count].T @ U[count:]
    changes = torch.linalg.solve_triangular(lower.T, sides.flatten(1), upper=True)
    lost = -changes.reshape(sides.shape)
    for number, count in enumerate(counts):
        lost[count:, number] = U[count:]
    return lost


def _in_order(consumer: Consumer, order: Tensor) -> Tensor:
    """Return all inputs: those that are never dropped, then the blocks in their order."""
    blocks = consumer.blocks.to(consumer.G.device)[order.to(consumer.G.device)]
    blocks = blocks[blocks >= 0]
    is_fixed = torch.ones(len(consumer.G), dtype=torch.bool, device=blocks.device)
    is_fixed[blocks] = False
    return torch.cat([torch.nonzero(is_fixed).reshape(-1), blocks])


def _sketched(U: Tensor) -> Tensor:
    """Return random combinations of many outputs, with the same expected inner products."""
    if U.shape[1] <= _SKETCH:
        return U
    generator = torch.Generator().manual_seed(U.shape[1])
    signs = torch.randint(0, 2, (U.shape[1], _SKETCH), generator=generator) * 2 - 1
    return U @ (signs.to(U) / _SKETCH**0.5)
