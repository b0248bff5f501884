"""Ridge regression of what a layer should give on what it gets, aware of the ReLU that follows.

With `y = X @ W.T + bias` and `z = scale * y + offset`, the loss is `||relu(z) - relu(wish)||`: where
the wish is negative, any negative `z` is as good. Each round majorizes that loss by a least-squares
problem with the same Gram matrix, so that rounds cost one product and one back-substitution.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
ROUNDS = 8
_SINGLE = 512  # more unknowns than this: products in single precision


@dataclass
class Solution:
    """A change of weights (out, unknowns) and bias (out,), and the errors it was judged by."""

    change: Tensor | None
    shift: Tensor
    before: float
    after: float
    ridge: float = 0.0


class Regression:
    """Rows of inputs and wishes of one dense layer, per group of its outputs."""

    def __init__(
        self,
        X: Tensor,
        wish: Tensor,
        offset: Tensor,
        *,
        scale: Tensor | None,
        relu: bool,
        shifts: bool,
    ) -> None:
        self.groups = X.shape[1]
        self.X = X.movedim(0, 1)  # (groups, rows, unknowns)
        self.wish, self.offset = self._apart(wish), self._apart(offset)
        ones = wish.new_ones(wish.shape[1]) if scale is None else scale.to(wish)
        tiny = ones.abs() < 1e-3 * ones.abs().mean()  # outputs that next to nothing comes of
        self.scale = self._apart(torch.where(tiny, 1.0, ones)[None])
        self.alive = self._apart((~tiny).to(wish)[None])
        self.relu, self.shifts = relu, shifts

    def solve(self, W0: Tensor, bias: Tensor | None) -> Solution:
        """The change of `W0` and bias. The last fifth of the rows chooses the ridge, and whether to
        change anything at all; then all rows are used."""
        W = W0.reshape(self.groups, -1, W0.shape[-1]).to(self.X)
        y = self.X @ W.mT
        if bias is not None:
            y = y + bias.to(y).reshape(self.groups, 1, -1)
        rows = self.X.shape[1]
        cut = max(1, rows - rows // 5)
        before = self._loss(y, slice(cut, rows))
        best = (before, 0.0)
        trained = _Normal(self.X[:, :cut], self.shifts)
        for ridge in RIDGES:
            change, shift = trained.solve(self._residual(y)[:, :cut], ridge)
            best = min(best, (self._loss(y + self.X @ change + shift, slice(cut, rows)), ridge))
        if best[1] == 0.0:
            return Solution(None, W0.new_zeros(len(W0)), before, before)
        normal = _Normal(self.X, self.shifts)
        total, moved = torch.zeros_like(W.mT), torch.zeros_like(y[:, :1])
        for _ in range(ROUNDS if self.relu else 1):
            now = y + self.X @ total + moved
            change, shift = normal.solve(self._residual(now), best[1], total)
            total, moved = total + change, moved + shift
        return Solution(
            total.mT.reshape(W0.shape).to(W0), moved.reshape(-1).to(W0), before, *best
        )

    def _residual(self, y: Tensor) -> Tensor:
        """How far `y` is from where its loss would vanish."""
        z = self.scale * y + self.offset
        short = self.wish - z
        if self.relu:
            short = torch.where(self.wish > 0, short, -z.clamp(min=0))
        return short / self.scale * self.alive

    def _loss(self, y: Tensor, rows: slice) -> float:
        z, wish = self.scale * y[:, rows] + self.offset[:, rows], self.wish[:, rows]
        if self.relu:
            z, wish = z.relu(), wish.relu()
        return float(((z - wish) * self.alive).double().square().sum())

    def _apart(self, values: Tensor) -> Tensor:
        """(rows, out) as (groups, rows, outputs of each)."""
        return values.reshape(len(values), self.groups, -1).movedim(0, 1)


class _Normal:
    """Normal equations of centred rows, one system per group."""

    def __init__(self, X: Tensor, shifts: bool) -> None:
        self.X = X
        self.mean = X.mean(1, keepdim=True) if shifts else X.new_zeros(1)
        self.shifts = shifts
        self._exact = X.shape[-1] <= _SINGLE or X.is_cuda
        centred = X - self.mean
        centred = centred.double() if self._exact else centred
        self.gram = (centred.mT @ centred).double()
        self.size = self.gram.diagonal(dim1=-2, dim2=-1).mean(-1).clamp(min=1e-30)[:, None, None]
        self._lower: dict[float, Tensor] = {}

    def solve(
        self, residual: Tensor, ridge: float, so_far: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The change (unknowns, out) and shift that take most of a residual away."""
        mean = residual.mean(1, keepdim=True) if self.shifts else residual.new_zeros(1)
        right = ((self.X - self.mean).mT @ (residual - mean)).double()
        if so_far is not None:
            right = right - ridge * self.size * so_far.double()
        if ridge not in self._lower:
            eye = torch.eye(self.gram.shape[-1], dtype=self.gram.dtype, device=self.gram.device)
            self._lower[ridge] = torch.linalg.cholesky(self.gram + ridge * self.size * eye)
        change = torch.cholesky_solve(right, self._lower[ridge]).to(residual)
        return change, mean - self.mean @ change if self.shifts else mean
