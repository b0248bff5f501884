"""Backward elimination: drop the block of inputs that the remaining inputs replace best.

A consumer computes `X @ U` from its inputs `X` (rows x u). When a block b of inputs is dropped and
the weights of the remaining inputs are solved again, the squared error grows by

    trace(W_b.T @ inverse(A_bb) @ W_b)        A = inverse(G),  G = X.T @ X,  W: current weights

and the weights and the inverse become

    W <- W - A_:b @ inverse(A_bb) @ W_b
    A <- A - A_:b @ inverse(A_bb) @ A_b:

This is the "optimal brain surgeon" formula (Hassibi and Stork, 1993) for blocks; it is exact for
linear consumers. Blocks are dropped one by one, or several at a time when there are many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from interpress.errors import DataError

# Ridge added to the diagonal of G, relative to its mean. A few thousand rows do not determine the
# directions that are smaller than this.
RIDGE = 1e-2
# A round drops one block out of _REMAINING_PER_DROP of the remaining blocks, or one out of
# _ALL_PER_DROP of all blocks if that is more, and at least one. This bounds the number of rounds.
_REMAINING_PER_DROP = 16
_ALL_PER_DROP = 128
# The blocks of a round are chosen among this many times more blocks, those of least error growth.
_POOL = 3
# Two blocks with a larger coupling are not dropped in the same round: each may replace the other.
_LARGEST_COUPLING = 0.5
# The entry of `A` for an input that does not exist, relative to the others: it couples to nothing.
_EMPTY = 1e-6


@dataclass(frozen=True, eq=False)
class Consumer:
    """One layer that reads the blocks."""

    G: Tensor
    """(u, u) second moments of its inputs, `X.T @ X`."""
    U: Tensor
    """(u, outputs) its weights, each output scaled by its importance."""
    blocks: Tensor
    """(blocks, most inputs of a block) input indices of each block; other inputs are never dropped.
    The row of a block with fewer inputs, or none, ends with -1."""
    energy: float
    """The squared norm that errors are relative to."""
    halves: Callable[[int], tuple[Tensor, Tensor]] | None = None
    """From the number of one half of the rows (0 or 1) to its second moments, and to those of the
    other half; None if there is only one half. Moments and `energy` are then per row."""


def eliminate(
    consumers: list[Consumer], dependent: Tensor | None = None, cells: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return all blocks, most important first, and the error for every number of kept blocks.

    The most important block is the one that is dropped last. The errors have shape (blocks + 1,):
    entry k is the error with k blocks kept, relative to `energy` and summed over the consumers.
    The blocks in `dependent` depend on the others; they are dropped first and count as no error.
    `cells` has the cell of every block: the next block is of a cell that kept the largest share.
    """
    states = [_State.of(consumer) for consumer in consumers]
    count = len(consumers[0].blocks)
    remaining = torch.arange(count, device=consumers[0].G.device)
    dropped_by_round: list[Tensor] = []
    errors = [0.0]
    if dependent is not None and len(dependent):
        dropped = dependent.to(remaining.device)
        remaining = remaining[~torch.isin(remaining, dropped)]
        for state in states:
            state.drop(dropped, remaining)
        dropped_by_round.append(dropped)
        errors += [0.0] * len(dependent)
    while len(remaining):
        growth = torch.stack([state.growth(remaining) for state in states]).sum(0)
        candidates = growth.argsort(stable=True)
        if cells is not None:
            candidates = candidates[_may_be_next(cells, remaining)[candidates]]
        drops = max(1, len(remaining) // _REMAINING_PER_DROP, count // _ALL_PER_DROP)
        drops = min(drops, len(candidates))
        candidates = candidates[: _POOL * drops]
        chosen = candidates[_uncoupled(states, remaining[candidates], drops)]
        dropped = remaining[chosen]
        remaining = remaining[~torch.isin(remaining, dropped)]
        joint_growth = sum(state.drop(dropped, remaining) for state in states)
        # The growth of the whole round is exact; it is split in proportion to the single growths.
        single_growth = growth[chosen].double().clamp(min=0).cpu()
        ratio = max(float(joint_growth), 0.0) / max(float(single_growth.sum()), 1e-300)
        for value in single_growth.tolist():
            errors.append(errors[-1] + value * ratio)
        dropped_by_round.append(dropped)
    order = torch.cat(dropped_by_round).flip(0).cpu()
    return order, torch.tensor(errors, dtype=torch.float64).flip(0)


def _may_be_next(cells: Tensor, remaining: Tensor) -> Tensor:
    """Return whether each remaining block is of a cell that kept the largest share."""
    cells = cells.to(remaining.device)
    sizes = torch.bincount(cells)
    shares = torch.bincount(cells[remaining], minlength=len(sizes)) / sizes
    return shares[cells[remaining]] >= shares.max() - 1e-6


def _uncoupled(states: list[_State], candidates: Tensor, count: int) -> Tensor:
    """Return positions of up to `count` candidates, the first ones without strong couplings."""
    if count == 1:
        return torch.zeros(1, dtype=torch.long, device=candidates.device)
    coupling = torch.stack([state.coupling(candidates) for state in states]).amax(0)
    coupled = (coupling > _LARGEST_COUPLING).numpy(force=True)
    chosen: list[int] = []
    excluded = np.zeros(len(candidates), dtype=bool)
    for position in range(len(candidates)):
        if not excluded[position]:
            chosen.append(position)
            excluded |= coupled[position]
            if len(chosen) == count:
                break
    return torch.tensor(chosen, device=candidates.device)


def _filled(A: Tensor, W: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return `A`, `W` and blocks of equal length, with an input of no weight for every -1."""
    missing = blocks < 0
    count = int(missing.sum())
    if not count:
        return A, W, blocks
    filled = A.new_zeros(len(A) + count, len(A) + count)
    filled[: len(A), : len(A)] = A
    filled.diagonal()[len(A) :] = _EMPTY * A.diagonal().mean()
    blocks = blocks.clone()
    blocks[missing] = torch.arange(len(A), len(filled), device=blocks.device)
    return filled, torch.cat([W, W.new_zeros(count, W.shape[1])]), blocks


class _State:
    """The inverse `A` and the weights `W` of one consumer during the elimination."""

    def __init__(self, A: Tensor, W: Tensor, blocks: Tensor, scale: float) -> None:
        self.A, self.W, self.blocks, self.scale = A, W, blocks, scale
        self._dropped_inputs = 0  # since the last compaction

    @classmethod
    def of(cls, consumer: Consumer) -> _State:
        """Return the state before the first drop."""
        G = consumer.G
        if not bool(G.isfinite().all()):
            raise DataError(
                "the second moments of a consumer's inputs overflow; scale the activations down, "
                "or run the model in float64"
            )
        size = G.diagonal().mean().clamp(min=1e-30)
        scaled = G / size
        scaled.diagonal().add_(RIDGE)
        lower, failed = torch.linalg.cholesky_ex(scaled)
        ridge = RIDGE
        while bool(failed):  # rounding errors of nearly constant inputs
            ridge *= 10
            scaled.diagonal().add_(ridge)
            lower, failed = torch.linalg.cholesky_ex(scaled)
        A = torch.cholesky_inverse(lower)
        W, blocks = consumer.U.to(G).clone(), consumer.blocks.to(G.device)
        return cls(*_filled(A, W, blocks), float(size) / consumer.energy)

    def coupling(self, candidates: Tensor) -> Tensor:
        """Return (candidates, candidates) normalised norms of the blocks of `A`, from 0 to 1."""
        count, width = self.blocks[candidates].shape
        index = self.blocks[candidates].reshape(-1)
        squares = self.A.index_select(0, index).index_select(1, index).square_()
        row_sums = squares.reshape(count, width, -1).sum(1)  # one dim at a time: contiguous rows
        norms = row_sums.reshape(count, count, width).sum(2).sqrt_()
        diagonal = norms.diagonal().sqrt()
        return norms / torch.outer(diagonal, diagonal).clamp(min=1e-30)

    def growth(self, remaining: Tensor) -> Tensor:
        """Return, per remaining block, the error growth if only that block is dropped."""
        inputs = self.blocks[remaining]  # (remaining, inputs per block)
        if inputs.shape[1] == 1:
            corner = self.A.diagonal()[inputs[:, 0]]
            return self.W[inputs[:, 0]].square().sum(1) / corner * self.scale
        corners = self.A[inputs[:, :, None], inputs[:, None, :]]
        W = self.W.index_select(0, inputs.reshape(-1)).reshape(*inputs.shape, -1)
        solved = torch.cholesky_solve(W @ W.mT, torch.linalg.cholesky(corners))
        return solved.diagonal(dim1=1, dim2=2).sum(1) * self.scale

    def drop(self, dropped: Tensor, remaining: Tensor) -> float:
        """Solve the weights of the `remaining` blocks again; return the growth of the error."""
        b = self.blocks[dropped].reshape(-1)
        rows = self.A.index_select(0, b)
        lower = torch.linalg.cholesky(rows.index_select(1, b))
        # a product with the inverse is several times as fast as solving for many columns
        identity = torch.eye(len(b), dtype=lower.dtype, device=lower.device)
        inverse = torch.linalg.solve_triangular(lower, identity, upper=False)
        side = inverse @ rows  # (b, u)
        solved = inverse @ self.W.index_select(0, b)
        self.W.addmm_(side.T, solved, alpha=-1)
        self.A.addmm_(side.T, side, alpha=-1)
        self._dropped_inputs += len(b)
        if 4 * self._dropped_inputs >= len(self.A):
            self._compact(remaining)
        return float(solved.square().sum()) * self.scale

    def _compact(self, remaining: Tensor) -> None:
        """Remove dropped inputs from `A` and `W`, so that the next rounds are cheaper."""
        is_live = torch.ones(len(self.A), dtype=torch.bool, device=self.A.device)
        all_blocks = torch.arange(len(self.blocks), device=self.A.device)
        dropped = self.blocks[all_blocks[~torch.isin(all_blocks, remaining)]].reshape(-1)
        is_live[dropped[dropped >= 0]] = False
        self._dropped_inputs = 0
        new_index = torch.full((len(self.A),), -1, device=self.A.device)
        new_index[is_live] = torch.arange(int(is_live.sum()), device=self.A.device)
        live = torch.nonzero(is_live).reshape(-1)
        self.A = self.A.index_select(0, live).index_select(1, live)
        self.W = self.W.index_select(0, live)
        self.blocks = torch.where(self.blocks >= 0, new_index[self.blocks.clamp(min=0)], -1)
