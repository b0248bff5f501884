"""A column ordering of `Z` with its triangular factor: kept columns, `T` and errors for every k."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from interpress.checks import is_number, is_whole
from interpress.errors import ArgumentError
from interpress.linalg.interpolation import Interpolation, interpolation_matrix
from interpress.linalg.norms import spectral_norm, spectral_norm_at_most
from interpress.linalg.precision import as_square
from interpress.linalg.strong import bounded_interpolation
from interpress.linalg.triangular import solve_truncated, solve_upper

# Rounding error of T, relative to Z, above which the minimum-norm solution is tried: at this size
# the triangular solve may be less accurate than a smaller T.
_LARGE_ROUNDING = 0.1


class SvdBound(NamedTuple):
    """Smallest error of any rank-k matrix, in both norms."""

    spectral: float
    frobenius: float


@dataclass(frozen=True, eq=False)
class ColumnOrdering:
    """All columns of `Z`, most important first, and the triangular factor in that order.

    The selections are nested: `kept(k)` is the first k entries of `order` for every k. Columns that
    depend on earlier ones (to the `floor` of the factor) add nothing to `T`, so that `T` stays of
    moderate size. Tails are the errors of the exact `T`. If the exact `T` is too large for floating
    point, :meth:`at_rank` returns a smaller `T` and reports the errors of that one.
    """

    order: Tensor  #: (n,) all columns
    independent: Tensor  #: (n,) bool, along `order`
    columns: Tensor  #: (n,) columns of `R`: the independent ones along `order`, then the others
    R: Tensor  #: upper trapezoidal, `R.T @ R == Z[:, columns].T @ Z[:, columns]`
    floor: float  #: errors relative to `||Z||_2` below this are rounding errors
    unseen: float = 0.0  #: bound on the norm of the dependent columns that `R` leaves out

    @property
    def n(self) -> int:
        """Number of columns."""
        return len(self.order)

    @property
    def numerical_rank(self) -> int:
        """Number of columns that are independent to the precision of the factor."""
        return int(self.independent_counts[-1])

    @cached_property
    def independent_counts(self) -> Tensor:
        """(n + 1,) number of independent columns among the first k, for k = 0 ... n."""
        counts = self.independent.long().cumsum(0)
        return torch.cat([counts.new_zeros(1), counts]).cpu()

    @cached_property
    def diagonal(self) -> Tensor:
        """(n,) `|r_jj|` along `order`; zero for a dependent column."""
        values = self.R.new_zeros(self.n)
        values[self.independent] = self.R.diagonal()[: self.numerical_rank].abs()
        return values

    @cached_property
    def proxy_errors(self) -> Tensor:
        """(n + 1,) `|r_{k+1,k+1} / r_11|` for k = 0 ... n, a cheap estimate of the error."""
        largest = self.diagonal.max()  # r_11 if the order is by pivoting
        relative = self.diagonal / torch.where(largest > 0, largest, 1.0)
        return torch.cat([relative, relative.new_zeros(1)])

    @cached_property
    def frobenius_tails(self) -> Tensor:
        """(n + 1,) `||Z - Z[:, kept] @ T||_F` for k = 0 ... n, exact down to the floor."""
        return self._tails(self.R.square().sum(dim=1), None)

    def weighted_tails(self, H: Tensor) -> Tensor:
        """Return (n + 1,) `||(Z - Z[:, kept] @ T) @ U||_F` for k = 0 ... n, with `H = U @ U.T`."""
        H = as_square(H, self.n, "H").to(self.R)[self.columns][:, self.columns]
        return self._tails(((self.R @ H) * self.R).sum(dim=1).clamp(min=0), H)

    def _tails(self, squares: Tensor, H: Tensor | None) -> Tensor:
        """Return (n + 1,) errors from `squares`, the squared contribution of each row of `R`.

        Row i of `R` contributes to the error until the i-th independent column is kept. The
        residual of a dependent column contributes until that column is kept.
        """
        rank = self.numerical_rank
        counts = self.independent_counts.to(self.R.device)
        row_errors = suffix_sums(squares[:rank])[counts]
        residual = self.R[rank:, rank:]  # of the dependent columns
        if residual.numel() == 0:
            return row_errors.sqrt()
        position = torch.empty_like(self.order)
        position[self.order] = torch.arange(self.n, device=position.device)
        by_order = position[self.columns[rank:]].argsort()
        residual = residual[:, by_order]
        if H is None:
            dependent_errors = suffix_sums(residual.square().sum(dim=0))
        else:
            M = (residual.T @ residual) * H[rank:, rank:][by_order][:, by_order]
            corner_sums = M.flip(0, 1).cumsum(0).cumsum(1).diagonal().flip(0)
            dependent_errors = torch.cat([corner_sums, M.new_zeros(1)]).clamp(min=0)
        kept_dependent = torch.arange(self.n + 1, device=counts.device) - counts
        return (row_errors + dependent_errors[kept_dependent]).sqrt()

    @cached_property
    def spectral_norm(self) -> float:
        """`||Z||_2`."""
        return spectral_norm(self.R)

    def spectral_tail(self, k: int) -> float:
        """Return `||R22||_2 = ||Z - Z[:, kept] @ T||_2` at this k."""
        return spectral_norm(self._R22(self._checked_k(k)))

    @cached_property
    def singular_values(self) -> Tensor:
        """Singular values of `Z`, largest first, without those a Gram matrix cannot resolve."""
        return torch.linalg.svdvals(self.R)

    def svd_bound(self, k: int) -> SvdBound:
        """Return the smallest errors of any rank-k approximation of `Z`."""
        beyond = self.singular_values[self._checked_k(k) :]
        if len(beyond) == 0:
            return SvdBound(0.0, 0.0)
        return SvdBound(float(beyond[0]), float(torch.linalg.vector_norm(beyond)))

    def kept(self, k: int) -> Tensor:
        """Return (k,) the columns to keep, most important first."""
        return self.order[: self._checked_k(k)].clone()

    def at_rank(self, k: int, *, max_entry: float | None = None) -> Interpolation:
        """Return the interpolation with k columns.

        `max_entry` (more than 1, usually 2) bounds every `|T|` entry by exchanging columns (strong
        rank-revealing QR, Gu and Eisenstat). The selection is then specific to this k and no
        longer the first k entries of `order`.
        """
        if max_entry is not None:
            return self._bounded(self._checked_k(k), max_entry)
        k = self._checked_k(k)
        count = int(self.independent_counts[k])
        kept = self.kept(k)
        R11, R12 = self.R[:count, :count], self.R[:count, count:]
        residual = self._R22(k)
        # Z[:, columns[count:]] ~= Z[:, columns[:count]] @ (R11^-1 R12)
        coefficients = solve_upper(R11, R12)
        size = float(torch.linalg.matrix_norm(coefficients)) if coefficients.numel() else 0.0
        if not self.floor * size < _LARGE_ROUNDING and k < self.n:
            truncated = solve_truncated(R11, R12, self.floor)
            error = R12 - R11 @ truncated
            rounding = self.floor * size * float(torch.linalg.matrix_norm(self.R))
            if not rounding <= float(torch.linalg.matrix_norm(error)):
                coefficients = truncated
                residual = torch.cat([error[:, self._dropped(k)], residual])
        basis = None if count == k else self.independent[:k].nonzero()[:, 0]
        T = interpolation_matrix(kept, self.columns[count:], coefficients, basis)
        return Interpolation(kept, T, lambda: residual)

    def _bounded(self, k: int, max_entry: float) -> Interpolation:
        if not is_number(max_entry) or not max_entry > 1:
            raise ArgumentError(f"max_entry={max_entry!r}; give a bound above 1, such as 2")
        count = int(self.independent_counts[k])
        dependent = self.order[:k][~self.independent[:k]]
        return bounded_interpolation(self.R, self.columns, count, dependent, max_entry)

    def for_accuracy(
        self,
        eps: float,
        *,
        certified: bool = True,
        max_entry: float | None = None,
        dtype: torch.dtype | None = None,
    ) -> Interpolation:
        """Return the interpolation with the smallest k whose error is at most `eps * ||Z||_2`.

        With `certified`, k is raised until `||R22||_2` plus a bound on the rounding errors is at
        most `eps * ||Z||_2`. With `max_entry`, whose swaps differ for every k, a smaller k may
        also satisfy this. Without `certified`, the estimate `|r_{k+1,k+1} / r_11|` decides. It is
        cheaper, but too small, usually by a small factor. `dtype` is the dtype in which `T` will
        be stored; the certificate then includes its rounding error.
        """
        if not is_number(eps) or not 0 <= eps < math.inf:
            raise ArgumentError(f"eps={eps!r}; give a relative error of at least 0, such as 1e-3")
        if not certified:
            above = (self.proxy_errors > eps).nonzero()
            return self.at_rank(int(above.max()) + 1 if len(above) else 0, max_entry=max_entry)
        if eps >= 1:
            return self.at_rank(0)
        allowed = eps * self.spectral_norm
        # |r_{k+1,k+1}| <= ||R22||_2, so every smaller k fails
        nested = max_entry is None and self.diagonal_decreases
        low = int((self.diagonal > allowed).sum()) if nested else 0
        best, high, stride = None, self.n, 1
        while low < high:
            # double the stride until one k holds, then bisect
            k = min(low + stride - 1, self.n - 1) if best is None else (low + high) // 2
            candidate = self.at_rank(k, max_entry=max_entry)
            if self._holds(candidate, eps, dtype):
                high, best = k, candidate
            else:
                low, stride = k + 1, 2 * stride
        return self.at_rank(high, max_entry=max_entry) if best is None else best

    def is_certified(self, k: int, eps: float, dtype: torch.dtype | None = None) -> bool:
        """Return whether `||Z - Z[:, kept] @ T||_2 <= eps * ||Z||_2`, rounding errors included."""
        return k == self.n or self._holds(self.at_rank(k), eps, dtype)

    def _holds(self, candidate: Interpolation, eps: float, dtype: torch.dtype | None) -> bool:
        rounding = self.floor + (torch.finfo(dtype).eps if dtype is not None else 0.0)
        margin = (rounding * self.spectral_norm + self.unseen) * (1 + candidate.T_norm)
        return spectral_norm_at_most(candidate.residual, eps * self.spectral_norm - margin)

    @cached_property
    def diagonal_decreases(self) -> bool:
        """Whether `|r_jj|` never grows along `order`, as column pivoting guarantees."""
        return bool((self.diagonal[1:] <= self.diagonal[:-1]).all())

    def _R22(self, k: int) -> Tensor:
        """Return the dropped columns of `Z - Z[:, kept] @ T`, up to a rotation of the rows."""
        count = int(self.independent_counts[k])
        return self.R[count:, count:][:, self._dropped(k)]

    def _dropped(self, k: int) -> Tensor | slice:
        """Return the indices of the columns to interpolate, among those after the basis."""
        count = int(self.independent_counts[k])
        if count == k:
            return slice(None)
        return ~torch.isin(self.columns[count:], self.order[:k])

    def _checked_k(self, k: int) -> int:
        if not is_whole(k) or not 0 <= k <= self.n:
            raise ArgumentError(f"k={k!r} for {self.n} columns; give a k from 0 to {self.n}")
        return int(k)

    def __repr__(self) -> str:
        return f"ColumnOrdering(n={self.n}, numerical_rank={self.numerical_rank})"


def suffix_sums(values: Tensor) -> Tensor:
    """Return (n + 1,) the sums of `values[k:]` for k = 0 ... n."""
    return torch.cat([values.flip(0).cumsum(0).flip(0), values.new_zeros(1)])
