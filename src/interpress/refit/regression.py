"""Ridge regression from a layer's inputs to its target outputs; accounts for a following ReLU.

With `z = scale * (X @ W.T + bias) + offset`, the loss is `||relu(z) - relu(target)||`: where the
target is negative, any negative `z` is as good. Each round majorises this loss by a least-squares
problem with the same Gram matrix, so a round costs one product and one back-substitution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interpress.refit.normal_equations import LARGE, NormalEquations, second_moments, weighted

RIDGES = (3e-1, 3e-2, 3e-3, 3e-4)
"""Ridges relative to the mean diagonal, tried from the strongest down while the next is better."""
ROUNDS = 2
"""Majorisation rounds after the first solve; large systems get one."""
RELAXATION = 1.7
"""Over-relaxation of a round. Below 2 the loss still decreases."""


@dataclass
class Solution:
    """A change of weights (outputs, unknowns) and of the bias (outputs,), and its errors."""

    change: Tensor | None
    """None if no change lowers the error on rows that were not fitted."""
    shift: Tensor
    before: float
    after: float
    ridge: float = 0.0


class Regression:
    """Rows of inputs and targets of one dense layer, per group of its outputs.

    Inputs come in pieces (rows, groups, unknowns). `offset` has one row per row of the target, or
    one for all. `shifts` says whether the layer has a bias to change. `weights` are sample weights.
    """

    def __init__(
        self,
        inputs: Sequence[Tensor],
        target: Tensor,
        offset: Tensor,
        *,
        scale: Tensor | None,
        relu: bool,
        shifts: bool,
        weights: Tensor | None = None,
    ) -> None:
        X = torch.cat([piece.movedim(0, 1) for piece in inputs], 1)  # (groups, rows, unknowns)
        self.groups = len(X)
        self.centre = X.mean(1, keepdim=True) if shifts else None
        self.X = X if self.centre is None else X.sub_(self.centre)
        self.weights = None if weights is None else weights.to(target)[:, None]
        scales = target.new_ones(target.shape[1]) if scale is None else scale.to(target)
        tiny = scales.abs() < 1e-3 * scales.abs().mean()  # outputs that are practically constant
        self.scale = self._by_group(torch.where(tiny, 1.0, scales)[None])
        self.alive = self._by_group((~tiny).to(target)[None]) if bool(tiny.any()) else None
        self.relu = relu
        self.target = self._by_group(target.relu() if relu else target)
        self.offset = self._by_group(offset)
        # where the target is negative, a positive residual costs nothing
        ceiling = torch.where(target > 0, torch.inf, 0.0) if relu else None
        self.ceiling = None if ceiling is None else self._by_group(ceiling)

    def solve(self, W0: Tensor, bias: Tensor | None) -> Solution:
        """Return the change of `W0` and bias.

        The last fifth of the rows selects the ridge and decides whether to change anything. Then
        all rows are fitted.
        """
        z = self._outputs(W0, bias)
        rows = self.X.shape[1]
        split = max(1, rows - rows // 5)
        fitted, judged = slice(0, split), slice(split, rows)
        before = self._loss(z[:, judged], judged)
        if before <= self._rounding(judged):
            return Solution(None, W0.new_zeros(len(W0)), before, before)
        shifts = self.centre is not None
        normal = NormalEquations(self.X[:, fitted], self._weights(fitted), shifts)
        if not bool(normal.gram.isfinite().all()):  # inputs too large to square
            return Solution(None, W0.new_zeros(len(W0)), before, before)
        best = self._best_ridge(normal, z, fitted, judged, before)
        if best is None:
            return Solution(None, W0.new_zeros(len(W0)), before, before)
        after, ridge, change, shift = best
        moments = normal.moments + second_moments(self.X[:, judged], self._weights(judged))
        normal = NormalEquations(self.X, self.weights, shifts, moments)
        change, shift = self._rounds(normal, z, ridge, change, shift)
        if self.centre is not None:
            shift = shift - self.centre @ change
        change, shift = (change / self.scale).mT.reshape(W0.shape), (shift / self.scale).reshape(-1)
        return Solution(change.to(W0), shift.to(W0), before, after, ridge)

    def _best_ridge(
        self, normal: NormalEquations, z: Tensor, fitted: slice, judged: slice, before: float
    ) -> tuple[float, float, Tensor, Tensor] | None:
        """Return loss, ridge, change and shift of the best ridge, or None if none is better."""
        best: tuple[float, float, Tensor, Tensor] | None = None
        loss = before
        sides = normal.sides(self._residual(z[:, fitted], fitted))
        for ridge in RIDGES:
            change, shift = normal.solve(sides, ridge)
            tried = (z[:, judged] + self.X[:, judged] @ change).add_(shift)
            tried_loss = self._loss(tried, judged)
            if tried_loss >= loss:
                break
            loss, best = tried_loss, (tried_loss, ridge, change, shift)
        return best

    def _rounds(
        self, normal: NormalEquations, z: Tensor, ridge: float, change: Tensor, shift: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Fit all rows, starting from a change; `z` is overwritten."""
        total, total_shift = change, shift
        for _ in range(ROUNDS if self.relu and self.X.shape[-1] <= LARGE else 1):
            z.baddbmm_(self.X, change).add_(shift)
            sides = normal.sides(self._residual(z, slice(None)))
            change, shift = normal.solve(sides, ridge, total)
            if self.relu:
                change, shift = RELAXATION * change, RELAXATION * shift
            total, total_shift = total + change, total_shift + shift
        return total, total_shift

    def _outputs(self, W0: Tensor, bias: Tensor | None) -> Tensor:
        """Return what the layer gives before any change, offset and scale included."""
        W = W0.reshape(self.groups, -1, W0.shape[-1]).to(self.X)
        z = torch.addcmul(self.offset, self.X @ W.mT, self.scale)
        if self.centre is not None:
            z += self.centre @ W.mT * self.scale
        if bias is not None:
            z += bias.to(z).reshape(self.groups, 1, -1) * self.scale
        return z

    def _residual(self, z: Tensor, rows: slice) -> Tensor:
        """Return the step from `z` to the nearest point where its loss vanishes."""
        residual = self.target[:, rows] - z
        if self.ceiling is not None:
            torch.minimum(residual, self.ceiling[:, rows], out=residual)
        return residual if self.alive is None else residual.mul_(self.alive)

    def _loss(self, z: Tensor, rows: slice) -> float:
        difference = (z.relu() if self.relu else z) - self.target[:, rows]
        if self.alive is not None:
            difference.mul_(self.alive)
        squares = weighted(difference.square_(), self._weights(rows))
        return float(squares.sum(dtype=torch.float64))

    def _rounding(self, rows: slice) -> float:
        """Return the loss that rounding alone explains."""
        energy = float(self.target[:, rows].square().sum(dtype=torch.float64))
        return (4 * torch.finfo(self.target.dtype).eps) ** 2 * energy

    def _weights(self, rows: slice) -> Tensor | None:
        return None if self.weights is None else self.weights[rows]

    def _by_group(self, values: Tensor) -> Tensor:
        """Return (rows, outputs) as (groups, rows, outputs per group)."""
        return values.reshape(len(values), self.groups, -1).movedim(0, 1)
