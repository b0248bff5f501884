"""Greedy selection of whole blocks of columns (attention heads) instead of single ones."""

from __future__ import annotations

import torch
from torch import Tensor


def order_blocks(terms: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Blocks in the order in which keeping them lowers the weighted error most.

    Every term is one reader: `G = Z.T @ Z`, `H = U @ U.T`, and (blocks, columns of each). Keeping
    block b lowers `trace(S @ H)` by `trace(inverse(S_bb) @ (S H S)_bb)`, `S` what is left of `G`.
    """
    count = len(terms[0][2])
    left = [G.clone() for G, _, _ in terms]
    totals = [max(float((G * H).sum()), 1e-300) for G, H, _ in terms]
    order: list[int] = []
    remaining = list(range(count))
    while remaining:
        gains = torch.zeros(len(remaining), dtype=torch.float64)
        for S, (_, H, blocks), total in zip(left, terms, totals, strict=True):
            F = S @ H @ S
            for place, block in enumerate(remaining):
                own = blocks[block]
                inner = torch.linalg.pinv(S[own][:, own], hermitian=True)
                gains[place] += float((inner * F[own][:, own]).sum()) / total
        best = remaining.pop(int(gains.argmax()))
        order.append(best)
        for index, (S, (_, _, blocks)) in enumerate(zip(left, terms, strict=True)):
            own = blocks[best]
            inner = torch.linalg.pinv(S[own][:, own], hermitian=True)
            left[index] = S - S[:, own] @ inner @ S[own]
    return torch.tensor(order)
