"""Normal equations of a ridge regression, one system per group of outputs."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from interpress.linalg.factor import gram

LARGE = 1024
"""Unknowns from which a system is solved in single precision, which is faster."""
_SMALLEST = 1e-20
"""Lower bound of the mean diagonal: a layer with constant inputs only gets a new bias."""


class NormalEquations:
    """Normal equations of centred rows. `X` must already be nearly centred."""

    def __init__(
        self, X: Tensor, weights: Tensor | None, shifts: bool, moments: Tensor | None = None
    ) -> None:
        self.X, self.weights, self.shifts = X, weights, shifts
        self.moments = second_moments(X, weights) if moments is None else moments
        exact = torch.float32 if X.shape[-1] > LARGE else torch.float64
        self.gram, self.mean = self.moments.to(exact), self._mean(X)
        if shifts:
            count = X.shape[1] if weights is None else float(weights.sum())
            self.gram = self.gram - count * (self.mean.mT @ self.mean).to(exact)
        diagonal = self.gram.diagonal(dim1=-2, dim2=-1)
        self.size = diagonal.mean(-1).clamp(min=_SMALLEST)[:, None, None]
        self._lower: dict[float, Tensor] = {}

    def sides(self, residuals: Iterable[tuple[slice, Tensor]]) -> tuple[Tensor, Tensor]:
        """Return the right-hand sides of a residual, and its mean.

        The residual comes in slices of rows, so that it need not be held at once. It is
        overwritten.
        """
        right: Tensor | float = 0.0
        total: Tensor | float = 0.0
        count = 0.0
        for rows, residual in residuals:
            weights = None if self.weights is None else self.weights[rows]
            counted = weighted(residual, weights)
            right = right + self.X[:, rows].mT @ counted
            if self.shifts:
                total = total + counted.sum(1, keepdim=True)
                count += residual.shape[1] if weights is None else float(weights.sum())
        assert isinstance(right, Tensor), "there are no rows"
        if not self.shifts:
            return right.to(self.gram), right.new_zeros(1)
        mean = torch.as_tensor(total) / count
        # X is nearly centred, so this is small
        right = right - count * (self.mean.mT @ mean)
        return right.to(self.gram), mean

    def _mean(self, values: Tensor) -> Tensor:
        """Return the (weighted) mean over rows, which the bias absorbs; zero without a bias."""
        if not self.shifts:
            return values.new_zeros(1)
        if self.weights is None:
            return values.mean(1, keepdim=True)
        return (self.weights.T / self.weights.sum()) @ values

    def solve(
        self, sides: tuple[Tensor, Tensor], ridge: float, so_far: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the change (unknowns, outputs) and shift that fit a residual best.

        The ridge pulls the total change, `so_far` included, towards zero.
        """
        right, mean = sides
        if so_far is not None:
            right = right - ridge * self.size * so_far.to(right)
        change = torch.cholesky_solve(right, self._factored(ridge)).to(mean)
        return change, mean - self.mean @ change if self.shifts else mean

    def _factored(self, ridge: float) -> Tensor:
        if ridge not in self._lower:
            added = ridge
            while True:  # rounding can leave the Gram matrix slightly indefinite
                system = self.gram.clone()
                system.diagonal(dim1=-2, dim2=-1).add_(added * self.size[:, :, 0])
                lower, failed = torch.linalg.cholesky_ex(system)
                if not bool(failed.any()):
                    break
                added = 10 * max(added, 1e-3)
            self._lower[ridge] = lower
        return self._lower[ridge]


def weighted(values: Tensor, weights: Tensor | None) -> Tensor:
    """Multiply rows by their weights, in place."""
    return values if weights is None else values.mul_(weights)


def second_moments(X: Tensor, weights: Tensor | None) -> Tensor:
    """Return (groups, unknowns, unknowns): `X.T @ diag(weights) @ X` of every group."""
    if weights is not None:
        X = X * weights.sqrt()
    return gram(X[0])[None] if len(X) == 1 else X.mT @ X
