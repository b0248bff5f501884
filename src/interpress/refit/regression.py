"""Ridge regression from a layer's inputs to its target outputs; accounts for the activation.

With `z = scale * (X @ W.T + bias) + offset` and the activation `f` that follows the layer, the loss
is `||f(z) - f(target)||`: where `f` is flat, the value of `z` does not matter. Each round majorises
this loss by a least-squares problem with the same Gram matrix, so a round costs one product and one
back-substitution.

First every output gets a new gain and bias, which few rows determine. Then its weights are solved
for. Rows that were not fitted decide whether either step is taken, and how strong the ridge is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interpress.graph.activations import Activation
from interpress.refit.affine import Affine, AffineSums
from interpress.refit.directions import Directions
from interpress.refit.loss import ActivationLoss
from interpress.refit.normal_equations import LARGE, NormalEquations, second_moments

RIDGES = (3e-1, 3e-2, 3e-3, 3e-4)
"""Ridges relative to the mean diagonal, tried from the strongest down while the next is better."""
STRONGER = (3.0, 30.0)
"""Ridges tried if the first of the others does not help."""
ROUNDS = 2
"""Majorisation rounds after the first solve; large systems get one."""
_CHUNK = 2**17
"""Outputs of the rows that are looked at together: 512 KiB in single precision."""
_FEWEST_IN_CHUNK = 256  # rows: products with fewer are slower
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
    `kernel` inputs in a row belong to the same channel.
    """

    def __init__(
        self,
        inputs: Sequence[Tensor],
        target: Tensor,
        offset: Tensor,
        *,
        scale: Tensor | None,
        activation: Activation | None,
        shifts: bool,
        weights: Tensor | None = None,
        kernel: int = 1,
    ) -> None:
        X = torch.cat([piece.movedim(0, 1) for piece in inputs], 1)  # (groups, rows, unknowns)
        self.groups, self.kernel = len(X), kernel
        self.centre = X.mean(1, keepdim=True) if shifts else None
        self.X = X if self.centre is None else X.sub_(self.centre)
        self.weights = None if weights is None else weights.to(target)[:, None]
        scales = target.new_ones(target.shape[1]) if scale is None else scale.to(target)
        tiny = scales.abs() < 1e-3 * scales.abs().mean()  # outputs that are practically constant
        self.scale = self._by_group(torch.where(tiny, 1.0, scales)[None])
        alive = self._by_group((~tiny).to(target)[None]) if bool(tiny.any()) else None
        self.offset = self._by_group(offset)
        self.loss = ActivationLoss(self._by_group(target), activation, alive, self.weights)

    def solve(self, W0: Tensor, bias: Tensor | None) -> Solution:
        """Return the change of `W0` and bias.

        The last fifth of the rows decides. Then all rows are fitted.
        """
        z = self._outputs(W0, bias)
        rows = self.X.shape[1]
        split = max(1, rows - rows // 5)
        fitted, judged = slice(0, split), slice(split, rows)
        before = self.loss(z[:, judged], judged)
        unchanged = Solution(None, W0.new_zeros(len(W0)), before, before)
        if rows < 2 or before <= self.loss.rounding(judged):
            return unchanged
        sums = self._affine_sums(z, fitted)
        affine = self._best_affine(sums, z, judged, before)
        tried = z if affine is None else affine.applied(z, self.offset)
        loss = before if affine is None else self.loss(tried[:, judged], judged)
        directions = self._reduced()
        best = self._best_ridge(tried, fitted, judged, loss)
        if affine is None and best is None:
            return unchanged
        if affine is not None:
            sums = sums.plus(self._affine_sums(z, judged, sums.centre))
            affine = sums.best(gains=bool(affine.gain.any()))
            z = affine.applied(z, self.offset)
        W = W0.reshape(self.groups, -1, W0.shape[-1]).to(self.X)
        change, shift, ridge = torch.zeros_like(W.mT), self.scale.new_zeros(1), 0.0
        if best is not None:
            loss, ridge, normal, change, shift = best
            change, shift = self._rounds(normal, z, ridge, change, shift)
            change = change if directions is None else directions.lifted(change[0])[None]
            if self.centre is not None:
                shift = shift - self.centre @ change
        change, shift = (change / self.scale).mT, (shift / self.scale).expand(self.scale.shape)
        if affine is not None:
            change = change + affine.gain.mT * W
            shift = shift + affine.shift / self.scale
            if bias is not None:
                shift = shift + affine.gain * bias.to(shift).reshape(shift.shape)
        return Solution(
            change.reshape(W0.shape).to(W0), shift.reshape(-1).to(W0), before, loss, ridge
        )

    def _reduced(self) -> Directions | None:
        """Reduce the inputs of a layer with a large kernel to some directions, and return these."""
        if self.groups > 1 or self.kernel == 1 or self.X.shape[-1] <= LARGE:
            return None
        directions = Directions.largest(self.X[0], self.kernel, LARGE)
        self.X = directions.projected(self.X[0])[None]
        return directions

    def _best_affine(
        self, sums: AffineSums, z: Tensor, judged: slice, before: float
    ) -> Affine | None:
        """Return a new gain and shift, or only a shift, or None if neither is better."""
        best, loss = None, before
        offset = self._rows_of_offset(judged)
        for gains in (False, True) if self.centre is not None else (True,):
            affine = sums.best(gains=gains)
            tried = self.loss(affine.applied(z[:, judged], offset), judged)
            if tried < loss:
                best, loss = affine, tried
        return best

    def _affine_sums(self, z: Tensor, rows: slice, centre: Tensor | None = None) -> AffineSums:
        """Return the sums over some rows from which the best gain and shift follow."""
        sums: AffineSums | None = None
        for chunk in self._chunks(rows):
            own = z[:, chunk] - self._rows_of_offset(chunk)  # what the layer itself contributes
            if centre is None and self.centre is not None:
                centre = own.mean(1, keepdim=True)
            weights = None if self.weights is None else self.weights[chunk]
            part = AffineSums.of(own, self.loss.step(z[:, chunk], chunk), weights, centre)
            sums = part if sums is None else sums.plus(part)
        assert sums is not None, "there are no rows"
        return sums

    def _chunks(self, rows: slice) -> Iterator[slice]:
        """Yield some rows in parts whose outputs fit into a processor's cache."""
        count = max(_FEWEST_IN_CHUNK, _CHUNK // max(self.scale.numel(), 1))
        for start in range(rows.start, rows.stop, count):
            yield slice(start, min(start + count, rows.stop))

    def _rows_of_offset(self, rows: slice) -> Tensor:
        return self.offset if self.offset.shape[1] == 1 else self.offset[:, rows]

    def _steps(self, z: Tensor, rows: slice) -> Iterator[tuple[slice, Tensor]]:
        """Yield how far outputs should move, in parts."""
        for chunk in self._chunks(rows):
            yield chunk, self.loss.step(z[:, chunk], chunk)

    def _best_ridge(
        self, z: Tensor, fitted: slice, judged: slice, before: float
    ) -> tuple[float, float, NormalEquations, Tensor, Tensor] | None:
        """Return loss, ridge, equations, change and shift of the best ridge; None if none helps."""
        weights = None if self.weights is None else self.weights[fitted]
        normal = NormalEquations(self.X[:, fitted], weights, self.centre is not None)
        if not bool(normal.gram.isfinite().all()):  # inputs too large to square
            return None
        sides = normal.sides(self._steps(z, fitted))
        best: tuple[float, Tensor, Tensor] | None = None
        loss = before
        for ridges in (RIDGES, STRONGER):
            for ridge in ridges if best is None else ():
                change, shift = normal.solve(sides, ridge)
                tried = (z[:, judged] + self.X[:, judged] @ change).add_(shift)
                tried_loss = self.loss(tried, judged)
                if tried_loss >= loss:
                    break
                loss, best = tried_loss, (ridge, change, shift)
        if best is None:
            return None
        judged_weights = None if self.weights is None else self.weights[judged]
        moments = normal.moments + second_moments(self.X[:, judged], judged_weights)
        whole = NormalEquations(self.X, self.weights, self.centre is not None, moments)
        return loss, best[0], whole, best[1], best[2]

    def _rounds(
        self, normal: NormalEquations, z: Tensor, ridge: float, change: Tensor, shift: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Fit all rows, starting from a change; `z` is overwritten."""
        total, total_shift = change, shift
        bends, whole = self.loss.activation is not None, slice(0, z.shape[1])

        def moved(change: Tensor, shift: Tensor) -> Iterator[tuple[slice, Tensor]]:
            for chunk in self._chunks(whole):
                part = z[:, chunk].baddbmm_(self.X[:, chunk], change).add_(shift)
                yield chunk, self.loss.step(part, chunk)

        for _ in range(ROUNDS if bends and self.X.shape[-1] <= LARGE else 1):
            sides = normal.sides(moved(change, shift))
            change, shift = normal.solve(sides, ridge, total)
            if bends:
                change, shift = RELAXATION * change, RELAXATION * shift
            total, total_shift = total + change, total_shift + shift
        return total, total_shift

    def _outputs(self, W0: Tensor, bias: Tensor | None) -> Tensor:
        """Return what the layer gives before any change, offset and scale included."""
        W = W0.reshape(self.groups, -1, W0.shape[-1]).to(self.X).mT * self.scale
        start = self.offset
        if self.centre is not None:
            start = start + self.centre @ W
        if bias is not None:
            start = start + bias.to(W).reshape(self.groups, 1, -1) * self.scale
        return torch.baddbmm(start, self.X, W)

    def _by_group(self, values: Tensor) -> Tensor:
        """Return (rows, outputs) as (groups, rows, outputs per group)."""
        return values.reshape(len(values), self.groups, -1).movedim(0, 1)
