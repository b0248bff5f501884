"""Greedy forward selection of blocks of columns, such as the columns of one attention head."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def order_blocks(terms: Sequence[tuple[Tensor, Tensor, Sequence[Tensor]]]) -> Tensor:
    """Return all blocks, the one whose selection lowers the weighted error most first.

    Each term describes one consumer: `G = Z.T @ Z`, `H = U @ U.T` and `blocks`, the column indices
    of each block, none or more. With `S` the Schur complement of `G` on the
    columns selected so far, selecting block b lowers the squared error `trace(S @ H)` by
    `trace(inverse(S_bb) @ (S H S)_bb)`. Errors are relative to `trace(G @ H)` and summed over the
    terms.
    """
    schur_complements = [G.clone() for G, _, _ in terms]
    totals = [max(float((G * H).sum()), 1e-300) for G, H, _ in terms]
    order: list[int] = []
    remaining = list(range(len(terms[0][2])))
    while remaining:
        gains = torch.zeros(len(remaining), dtype=torch.float64)
        for S, (_, H, blocks), total in zip(schur_complements, terms, totals, strict=True):
            F = S @ H @ S
            for position, block in enumerate(remaining):
                columns = blocks[block]
                if not len(columns):
                    continue
                inverse = torch.linalg.pinv(S[columns][:, columns], hermitian=True)
                gains[position] += float((inverse * F[columns][:, columns]).sum()) / total
        best = remaining.pop(int(gains.argmax()))
        order.append(best)
        for index, (S, (_, _, blocks)) in enumerate(zip(schur_complements, terms, strict=True)):
            columns = blocks[best]
            if not len(columns):
                continue
            inverse = torch.linalg.pinv(S[columns][:, columns], hermitian=True)
            schur_complements[index] = S - S[:, columns] @ inverse @ S[columns]
    return torch.tensor(order)
