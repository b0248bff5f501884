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

import numpy as np
import torch
from torch import Tensor

RIDGE = 1e-2  # of the mean diagonal: what a few thousand rows can tell, and no more
_SHARE = 16  # one block in so many is dropped at a time,
_GRAIN = 128  # or one in so many of all, if that is more,
_POOL = 3  # out of so many times more,
_COUPLED = 0.5  # no two of which are coupled more than this


@dataclass(frozen=True, eq=False)
class Consumer:
    """One reader of the blocks."""

    G: Tensor
    """(u, u) second moments of its inputs, summed over rows."""
    U: Tensor
    """(u, outputs) the weights it applies, each output scaled as it counts."""
    blocks: Tensor
    """(blocks, inputs of each): which inputs belong to a block; others are never dropped."""
    energy: float
    """What the error is relative to."""


def eliminate(readers: list[Consumer], first: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Blocks, the last dropped first, and (blocks + 1,) the summed relative error with k kept.

    Blocks named in `first` are known to depend on the others and go first, at no cost.
    """
    parts = [_Part.of(reader) for reader in readers]
    count = len(readers[0].blocks)
    alive = torch.arange(count, device=readers[0].G.device)
    dropped: list[Tensor] = []
    errors = [0.0]
    if first is not None and len(first):
        dropped.append(first.to(alive.device))
        errors += [0.0] * len(first)
        alive = alive[~torch.isin(alive, dropped[0])]
        for part in parts:
            part.drop(dropped[0], alive)
    while len(alive):
        growth = torch.stack([part.growth(alive) for part in parts]).sum(0)
        examples_per_batch = min(max(1, len(alive) // _SHARE, count // _GRAIN), len(alive))
        ranked = growth.argsort(stable=True)[: _POOL * examples_per_batch]
        chosen = ranked[_apart(parts, alive[ranked], examples_per_batch)]
        gone = alive[chosen]
        alive = alive[~torch.isin(alive, gone)]
        together = sum(part.drop(gone, alive) for part in parts)
        alone = growth[chosen].double().clamp(min=0).cpu()
        share = max(float(together), 0.0) / max(float(alone.sum()), 1e-300)
        for value in alone.tolist():
            errors.append(errors[-1] + value * share)
        dropped.append(gone)
    order = torch.cat(dropped).flip(0).cpu()
    return order, torch.tensor(errors, dtype=torch.float64).flip(0)


def _apart(parts: list[_Part], pool: Tensor, count: int) -> Tensor:
    """Places of `count` blocks of a pool, in its order, no two of which stand for each other."""
    if count == 1:
        return torch.zeros(1, dtype=torch.long, device=pool.device)
    coupling = torch.stack([part.coupling(pool) for part in parts]).amax(0)
    coupled = (coupling > _COUPLED).numpy(force=True)
    taken: list[int] = []
    barred = np.zeros(len(pool), dtype=bool)
    for place in range(len(pool)):
        if not barred[place]:
            taken.append(place)
            barred |= coupled[place]
            if len(taken) == count:
                break
    return torch.tensor(taken, device=pool.device)


class _Part:
    """The inverse and the weights of one reader, while blocks leave."""

    def __init__(self, A: Tensor, W: Tensor, blocks: Tensor, scale: float) -> None:
        self.A, self.W, self.blocks, self.scale = A, W, blocks, scale
        self._dead = 0

    @classmethod
    def of(cls, reader: Consumer) -> _Part:
        """Nothing dropped yet."""
        G = reader.G
        size = G.diagonal().mean().clamp(min=1e-30)
        scaled = G / size
        scaled.diagonal().add_(RIDGE)
        lower, failed = torch.linalg.cholesky_ex(scaled)
        more = RIDGE
        while bool(failed):  # rounding of nearly constant inputs
            more *= 10
            scaled.diagonal().add_(more)
            lower, failed = torch.linalg.cholesky_ex(scaled)
        A = torch.cholesky_inverse(lower)
        W, blocks = reader.U.to(G).clone(), reader.blocks.to(G.device)
        return cls(A, W, blocks, float(size) / reader.energy)

    def coupling(self, pool: Tensor) -> Tensor:
        """(pool, pool) how far two blocks make up for each other, from 0 to 1."""
        count, each = self.blocks[pool].shape
        index = self.blocks[pool].reshape(-1)
        squares = self.A.index_select(0, index).index_select(1, index).square_()
        down = squares.reshape(count, each, -1).sum(1)  # one dim at a time: rows are contiguous
        size = down.reshape(count, count, each).sum(2).sqrt_()
        diagonal = size.diagonal().sqrt()
        return size / torch.outer(diagonal, diagonal).clamp(min=1e-30)

    def growth(self, alive: Tensor) -> Tensor:
        """How much the error grows if one of these blocks is dropped."""
        own = self.blocks[alive]
        if own.shape[1] == 1:
            corner = self.A.diagonal()[own[:, 0]]
            return self.W[own[:, 0]].square().sum(1) / corner * self.scale
        corners = self.A[own[:, :, None], own[:, None, :]]
        W = self.W.index_select(0, own.reshape(-1)).reshape(*own.shape, -1)
        solved = torch.cholesky_solve(W @ W.mT, torch.linalg.cholesky(corners))
        return solved.diagonal(dim1=1, dim2=2).sum(1) * self.scale

    def drop(self, gone: Tensor, rest: Tensor) -> float:
        """Solve for the `rest` without these blocks; how much the error grows."""
        b = self.blocks[gone].reshape(-1)
        rows = self.A.index_select(0, b)
        lower = torch.linalg.cholesky(rows.index_select(1, b))
        side = torch.linalg.solve_triangular(lower, rows, upper=False)  # (b, u)
        solved = torch.linalg.solve_triangular(lower, self.W.index_select(0, b), upper=False)
        self.W.addmm_(side.T, solved, alpha=-1)
        self.A.addmm_(side.T, side, alpha=-1)
        self._dead += len(b)
        if 4 * self._dead >= len(self.A):
            self._compact(rest)
        return float(solved.square().sum()) * self.scale

    def _compact(self, rest: Tensor) -> None:
        """Forget dropped inputs once they are many, so that the rest goes faster."""
        live = torch.ones(len(self.A), dtype=torch.bool, device=self.A.device)
        everything = torch.arange(len(self.blocks), device=self.A.device)
        dead = self.blocks[everything[~torch.isin(everything, rest)]].reshape(-1)
        live[dead[dead >= 0]] = False
        self._dead = 0
        place = torch.full((len(self.A),), -1, device=self.A.device)
        place[live] = torch.arange(int(live.sum()), device=self.A.device)
        left = torch.nonzero(live).reshape(-1)
        self.A = self.A.index_select(0, left).index_select(1, left)
        self.W = self.W.index_select(0, left)
        self.blocks = torch.where(self.blocks >= 0, place[self.blocks.clamp(min=0)], -1)
