"""Backward elimination: drop the block of inputs whose loss the others make up for best.

A reader computes `X @ U` from its inputs `X` (rows x u). If some inputs are dropped and `U` is
solved again for the others, the error grows, for a block b of inputs, by

    trace(W_b.T @ inverse(A_bb) @ W_b)        A = inverse(G),  G = X.T @ X,  W = U solved so far

and dropping it changes `W <- W - A_:b inverse(A_bb) W_b`, `A <- A - A_:b inverse(A_bb) A_b:` (the
"optimal brain surgeon" formula, Hassibi and Stork 1993, for blocks and in closed form for linear
readers). Blocks are dropped one by one, or a few at a time where there are many.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

RIDGE = 1e-2  # of the mean diagonal: what a few thousand rows can tell, and no more
_SHARE = 8  # one block in so many is dropped at a time


@dataclass(frozen=True, eq=False)
class Reader:
    """One reader of the blocks."""

    G: Tensor
    """(u, u) second moments of its inputs, summed over rows."""
    U: Tensor
    """(u, outputs) the weights it applies, each output scaled as it counts."""
    blocks: Tensor
    """(blocks, inputs of each): which inputs belong to a block; others are never dropped."""
    energy: float
    """What the error is relative to."""


def eliminate(readers: list[Reader]) -> tuple[Tensor, Tensor]:
    """Blocks, the last dropped first, and (blocks + 1,) the summed relative error with k kept."""
    parts = [_Part(reader) for reader in readers]
    count = len(readers[0].blocks)
    alive = torch.arange(count, device=readers[0].G.device)
    dropped: list[Tensor] = []
    errors = [0.0]
    while len(alive):
        growth = torch.stack([part.growth(alive) for part in parts]).sum(0)
        at_once = max(1, len(alive) // _SHARE)
        chosen = growth.argsort(stable=True)[:at_once]
        for value in growth[chosen].double().cpu().tolist():
            errors.append(errors[-1] + max(value, 0.0))
        dropped.append(alive[chosen])
        stays = torch.ones(len(alive), dtype=torch.bool, device=alive.device)
        stays[chosen] = False
        for part in parts:
            part.drop(alive[chosen], alive[stays])
        alive = alive[stays]
    order = torch.cat(dropped).flip(0).cpu()
    return order, torch.tensor(errors, dtype=torch.float64).flip(0)


class _Part:
    """The inverse and the weights of one reader, while blocks leave."""

    def __init__(self, reader: Reader) -> None:
        G = reader.G
        size = G.diagonal().mean().clamp(min=1e-30)
        scaled = G / size
        scaled.diagonal().add_(RIDGE)
        self.A = torch.cholesky_inverse(torch.linalg.cholesky(scaled))
        self.W = reader.U.to(G).clone()
        self.blocks = reader.blocks.to(G.device)
        self.scale = float(size) / reader.energy

    def growth(self, alive: Tensor) -> Tensor:
        """How much the error grows if one of these blocks is dropped."""
        own = self.blocks[alive]
        corners = self.A[own[:, :, None], own[:, None, :]]
        W = self.W[own]  # (blocks, inputs, outputs)
        solved = torch.cholesky_solve(W, torch.linalg.cholesky(corners))
        return (solved * W).sum((1, 2)) * self.scale

    def drop(self, gone: Tensor, rest: Tensor) -> None:
        """Solve for the others without these blocks."""
        b = self.blocks[gone].reshape(-1)
        lower = torch.linalg.cholesky(self.A[b][:, b])
        side = torch.linalg.solve_triangular(lower, self.A[b], upper=False)  # (b, u)
        solved = torch.linalg.solve_triangular(lower, self.W[b], upper=False)
        self.W.addmm_(side.T, solved, alpha=-1)
        self.A.addmm_(side.T, side, alpha=-1)
        self._compact(gone, rest)

    def _compact(self, gone: Tensor, rest: Tensor) -> None:
        """Forget dropped inputs once they are half of all, so that the rest goes faster."""
        live = torch.ones(len(self.A), dtype=torch.bool, device=self.A.device)
        everything = torch.arange(len(self.blocks), device=self.A.device)
        dead = self.blocks[everything[~torch.isin(everything, rest)]].reshape(-1)
        live[dead[dead >= 0]] = False
        if int(live.sum()) * 4 > 3 * len(self.A):
            return
        place = torch.full((len(self.A),), -1, device=self.A.device)
        place[live] = torch.arange(int(live.sum()), device=self.A.device)
        self.A, self.W = self.A[live][:, live], self.W[live]
        self.blocks = torch.where(self.blocks >= 0, place[self.blocks.clamp(min=0)], -1)
