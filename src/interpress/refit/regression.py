"""Ridge regression of what a layer should give on what it gets, aware of the ReLU that follows.

With `z = scale * (X @ W.T + bias) + offset`, the loss is `||relu(z) - relu(wish)||`: if the wish is
negative, any negative `z` is as good. Each round majorizes that loss by a least-squares
problem with the same Gram matrix, so that rounds cost one product and one back-substitution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interpress.linalg.factor import gram

RIDGES = (3e-1, 3e-2, 3e-3, 3e-4)  # tried in turn, as long as the next one is better
ROUNDS = 2  # after the first; one of a large system
RELAXATION = 1.7  # of these; below 2, so that the loss still falls
_TINY = 1e-20  # below which a layer's inputs are constant, and only its shift can change
_LARGE = 1024  # unknowns, from which a system is large, and is solved in single precision


@dataclass
class Solution:
    """A change of weights (out, unknowns) and bias (out,), and the errors it was judged by."""

    change: Tensor | None
    shift: Tensor
    before: float
    after: float
    ridge: float = 0.0


class Regression:
    """Rows of inputs and wishes of one dense layer, per group of its outputs.

    Inputs come in pieces (rows, groups, unknowns). `offset` has a row for each row, or one for all;
    `weights` say how much each row counts, if they differ.
    """

    def __init__(
        self,
        inputs: Sequence[Tensor],
        wish: Tensor,
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
        self.weights = None if weights is None else weights.to(wish)[:, None]
        ones = wish.new_ones(wish.shape[1]) if scale is None else scale.to(wish)
        tiny = ones.abs() < 1e-3 * ones.abs().mean()  # outputs that next to nothing comes of
        self.scale = self._apart(torch.where(tiny, 1.0, ones)[None])
        self.alive = self._apart((~tiny).to(wish)[None]) if bool(tiny.any()) else None
        self.relu = relu
        self.wish, self.offset = self._apart(wish.relu() if relu else wish), self._apart(offset)
        # where the wish is negative, a residual is never positive
        self.ceiling = self._apart(torch.where(wish > 0, torch.inf, 0.0)) if relu else None

    def solve(self, W0: Tensor, bias: Tensor | None) -> Solution:
        """The change of `W0` and bias. The last fifth of the rows chooses the ridge, and whether to
        change anything at all; then all rows are used."""
        z = self._outputs(W0, bias)
        rows = self.X.shape[1]
        fitted, judged = slice(0, max(1, rows - rows // 5)), slice(max(1, rows - rows // 5), rows)
        before = after = self._loss(z[:, judged], judged)
        if before <= self._rounding(judged):
            return Solution(None, W0.new_zeros(len(W0)), before, before)
        best: tuple[float, Tensor, Tensor] | None = None
        shifts = self.centre is not None
        normal = _Normal(self.X[:, fitted], self._weights(fitted), shifts)
        sides = normal.sides(self._residual(z[:, fitted], fitted))
        for ridge in RIDGES:
            change, shift = normal.solve(sides, ridge)
            tried = (z[:, judged] + self.X[:, judged] @ change).add_(shift)
            loss = self._loss(tried, judged)
            if loss >= after:
                break
            after, best = loss, (ridge, change, shift)
        if best is None:
            return Solution(None, W0.new_zeros(len(W0)), before, before)
        more = _moments(self.X[:, judged], self._weights(judged))
        normal = _Normal(self.X, self.weights, shifts, normal.moments + more)
        ridge, change, shift = best
        total, moved = change, shift
        for _ in range(ROUNDS if self.relu and self.X.shape[-1] <= _LARGE else 1):
            z.baddbmm_(self.X, change).add_(shift)
            sides = normal.sides(self._residual(z, slice(None)))
            change, shift = normal.solve(sides, ridge, total)
            if self.relu:
                change, shift = RELAXATION * change, RELAXATION * shift
            total, moved = total + change, moved + shift
        if self.centre is not None:
            moved = moved - self.centre @ total
        total, moved = (total / self.scale).mT.reshape(W0.shape), (moved / self.scale).reshape(-1)
        return Solution(total.to(W0), moved.to(W0), before, after, ridge)

    def _outputs(self, W0: Tensor, bias: Tensor | None) -> Tensor:
        """What the layer gives before any change, offset and scale included."""
        W = W0.reshape(self.groups, -1, W0.shape[-1]).to(self.X)
        z = torch.addcmul(self.offset, self.X @ W.mT, self.scale)
        if self.centre is not None:
            z += self.centre @ W.mT * self.scale
        if bias is not None:
            z += bias.to(z).reshape(self.groups, 1, -1) * self.scale
        return z

    def _residual(self, z: Tensor, rows: slice) -> Tensor:
        """How far `z` is from where its loss would vanish."""
        short = self.wish[:, rows] - z
        if self.ceiling is not None:
            torch.minimum(short, self.ceiling[:, rows], out=short)
        return short if self.alive is None else short.mul_(self.alive)

    def _loss(self, z: Tensor, rows: slice) -> float:
        short = (z.relu() if self.relu else z) - self.wish[:, rows]
        if self.alive is not None:
            short.mul_(self.alive)
        return float(_times(short.square_(), self._weights(rows)).sum(dtype=torch.float64))

    def _rounding(self, rows: slice) -> float:
        """A loss that rounding alone explains."""
        size = float(self.wish[:, rows].square().sum(dtype=torch.float64))
        return (4 * torch.finfo(self.wish.dtype).eps) ** 2 * size

    def _weights(self, rows: slice) -> Tensor | None:
        return None if self.weights is None else self.weights[rows]

    def _apart(self, values: Tensor) -> Tensor:
        """(rows, out) as (groups, rows, outputs of each)."""
        return values.reshape(len(values), self.groups, -1).movedim(0, 1)


class _Normal:
    """Normal equations of rows less their mean, one system per group.

    The mean must be small beside the rows, as it is for any part of centred ones.
    """

    def __init__(
        self, X: Tensor, weights: Tensor | None, shifts: bool, moments: Tensor | None = None
    ) -> None:
        self.X, self.weights, self.shifts = X, weights, shifts
        self.moments = _moments(X, weights) if moments is None else moments
        exact = torch.float32 if X.shape[-1] > _LARGE else torch.float64
        self.gram, self.mean = self.moments.to(exact), self._mean(X)
        if shifts:
            count = X.shape[1] if weights is None else float(weights.sum())
            self.gram = self.gram - count * (self.mean.mT @ self.mean).to(exact)
        self.size = self.gram.diagonal(dim1=-2, dim2=-1).mean(-1).clamp(min=_TINY)[:, None, None]
        self._lower: dict[float, Tensor] = {}

    def sides(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """The right-hand sides of a residual, which is overwritten, and its mean."""
        mean = self._mean(residual)
        pull = _times(residual.sub_(mean), self.weights)
        return (self.X.mT @ pull).to(self.gram), mean  # X need not be centred as well

    def _mean(self, values: Tensor) -> Tensor:
        """(groups, 1, ...): what a shift takes care of."""
        if not self.shifts:
            return values.new_zeros(1)
        if self.weights is None:
            return values.mean(1, keepdim=True)
        return (self.weights.T / self.weights.sum()) @ values

    def solve(
        self, sides: tuple[Tensor, Tensor], ridge: float, so_far: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The change (unknowns, out) and shift that take most of a residual away."""
        right, mean = sides
        if so_far is not None:
            right = right - ridge * self.size * so_far.to(right)
        change = torch.cholesky_solve(right, self._factored(ridge)).to(mean)
        return change, mean - self.mean @ change if self.shifts else mean

    def _factored(self, ridge: float) -> Tensor:
        if ridge not in self._lower:
            extra = ridge
            while True:  # rounding can leave the Gram matrix a little short of definite
                system = self.gram.clone()
                system.diagonal(dim1=-2, dim2=-1).add_(extra * self.size[:, :, 0])
                lower, failed = torch.linalg.cholesky_ex(system)
                if not bool(failed.any()):
                    break
                extra = 10 * max(extra, 1e-3)
            self._lower[ridge] = lower
        return self._lower[ridge]


def _times(values: Tensor, weights: Tensor | None) -> Tensor:
    """Rows times their weights, in place."""
    return values if weights is None else values.mul_(weights)


def _moments(X: Tensor, weights: Tensor | None) -> Tensor:
    """(groups, u, u): `X.T @ diag(weights) @ X` of every group."""
    if weights is not None:
        X = X * weights.sqrt()
    return gram(X[0])[None] if len(X) == 1 else X.mT @ X
