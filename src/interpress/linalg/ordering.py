"""One factorization, every answer: kept columns, ``T`` and errors at any k."""

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

# Where T is so large that rounding in it is of this size, relative to Z, a smaller T is as exact.
_ROUNDING = 0.1


class SvdBound(NamedTuple):
    """What no rank-k matrix can beat, in either norm."""

    spectral: float
    frobenius: float


@dataclass(frozen=True, eq=False)
class ColumnOrdering:
    """All columns of ``Z``, most important first, and the triangular factor in that order.

    Nested: ``kept`` for k is the first k of ``order``, whatever k. Columns that depend on the ones
    before them (to the factor's ``floor``) add nothing to ``T`` and never make it large. Tails are
    those of the exact ``T``; where that is too large for floating point, :meth:`at_rank` returns a
    smaller one, whose own errors say what it costs.
    """

    order: Tensor  #: (n,) every column
    independent: Tensor  #: (n,) bool, along ``order``
    columns: Tensor  #: (n,) column order of ``R``: the independent of ``order``, then the others
    R: Tensor  #: upper trapezoidal, ``R.T @ R == Z[:, columns].T @ Z[:, columns]``
    floor: float  #: errors relative to ``||Z||_2`` below this are rounding
    unseen: float = 0.0  #: bound on the norm of dependent columns that ``R`` does not show

    @property
    def n(self) -> int:
        """How many columns there are."""
        return len(self.order)

    @property
    def numerical_rank(self) -> int:
        """How many columns are independent to the factor's precision."""
        return int(self.independent_counts[-1])

    @cached_property
    def independent_counts(self) -> Tensor:
        """(n + 1,) how many of the first k columns are independent."""
        counts = self.independent.long().cumsum(0)
        return torch.cat([counts.new_zeros(1), counts]).cpu()

    @cached_property
    def diagonal(self) -> Tensor:
        """(n,) ``|r_jj|`` along ``order``; zero for a dependent column."""
        values = self.R.new_zeros(self.n)
        values[self.independent] = self.R.diagonal()[: self.numerical_rank].abs()
        return values

    @cached_property
    def proxy_errors(self) -> Tensor:
        """(n + 1,) ``|r_{k+1,k+1} / r_11|`` for k = 0 ... n, the paper's cheap error estimate."""
        largest = self.diagonal.max()  # r_11, if the order is by pivoting
        relative = self.diagonal / torch.where(largest > 0, largest, 1.0)
        return torch.cat([relative, relative.new_zeros(1)])

    @cached_property
    def frobenius_tails(self) -> Tensor:
        """(n + 1,) ``||Z - Z[:, kept] @ T||_F`` for k = 0 ... n, exact down to the floor."""
        return self._tails(self.R.square().sum(dim=1), None)

    def weighted_tails(self, H: Tensor) -> Tensor:
        """(n + 1,) ``||(Z - Z[:, kept] @ T) @ U||_F`` for k = 0 ... n, with ``H = U @ U.T``."""
        H = as_square(H, self.n, "H").to(self.R)[self.columns][:, self.columns]
        return self._tails(((self.R @ H) * self.R).sum(dim=1).clamp(min=0), H)

    def _tails(self, squares: Tensor, H: Tensor | None) -> Tensor:
        """Row i of R is lost until the i-th independent column is kept.

        What is left of the dependent columns stays lost until they are kept themselves.
        """
        rank = self.numerical_rank
        counts = self.independent_counts.to(self.R.device)
        lost = suffix_sums(squares[:rank])[counts]
        rest = self.R[rank:, rank:]
        if rest.numel() == 0:
            return lost.sqrt()
        place = torch.empty_like(self.order)
        place[self.order] = torch.arange(self.n, device=place.device)
        by_order = place[self.columns[rank:]].argsort()
        rest = rest[:, by_order]
        if H is None:
            dependent = suffix_sums(rest.square().sum(dim=0))
        else:
            M = (rest.T @ rest) * H[rank:, rank:][by_order][:, by_order]
            corner_sums = M.flip(0, 1).cumsum(0).cumsum(1).diagonal().flip(0)
            dependent = torch.cat([corner_sums, M.new_zeros(1)]).clamp(min=0)
        kept_dependent = torch.arange(self.n + 1, device=counts.device) - counts
        return (lost + dependent[kept_dependent]).sqrt()

    @cached_property
    def spectral_norm(self) -> float:
        """``||Z||_2``."""
        return spectral_norm(self.R)

    def spectral_tail(self, k: int) -> float:
        """``||R22||_2 = ||Z - Z[:, kept] @ T||_2`` at this k, computed."""
        return spectral_norm(self._R22(self._checked(k)))

    @cached_property
    def singular_values(self) -> Tensor:
        """Singular values of ``Z``, largest first; those a Gram matrix cannot see are left out."""
        return torch.linalg.svdvals(self.R)

    def svd_bound(self, k: int) -> SvdBound:
        """The errors no rank-k approximation of any kind can go below."""
        beyond = self.singular_values[self._checked(k) :]
        if len(beyond) == 0:
            return SvdBound(0.0, 0.0)
        return SvdBound(float(beyond[0]), float(torch.linalg.vector_norm(beyond)))

    def kept(self, k: int) -> Tensor:
        """(k,) the columns to keep, most important first."""
        return self.order[: self._checked(k)].clone()

    def at_rank(self, k: int, *, max_entry: float | None = None) -> Interpolation:
        """The interpolation with k columns.

        ``max_entry`` (more than 1; 2 is usual) bounds every ``|T|`` entry by swapping columns in
        and out (Gu and Eisenstat's strong rank-revealing factorization); the selection is then
        for this k alone, no longer the first k of ``order``.
        """
        if max_entry is not None:
            return self._bounded(self._checked(k), max_entry)
        k = self._checked(k)
        count = int(self.independent_counts[k])
        kept = self.kept(k)
        R11, R12 = self.R[:count, :count], self.R[:count, count:]
        residual = self._R22(k)
        coefficients = solve_upper(R11, R12)  # Z[:, rest] ~= Z[:, basis] @ (R11^-1 R12)
        size = float(torch.linalg.matrix_norm(coefficients)) if coefficients.numel() else 0.0
        if not self.floor * size < _ROUNDING and k < self.n:
            smaller = solve_truncated(R11, R12, self.floor)
            missed = R12 - R11 @ smaller
            rounding = self.floor * size * float(torch.linalg.matrix_norm(self.R))
            if not rounding <= float(torch.linalg.matrix_norm(missed)):
                coefficients = smaller
                residual = torch.cat([missed[:, self._dropped(k)], residual])
        basis = None if count == k else self.independent[:k].nonzero()[:, 0]
        T = interpolation_matrix(kept, self.columns[count:], coefficients, basis)
        return Interpolation(kept, T, residual)

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
        """The smallest k with error at most ``eps`` relative to ``||Z||_2``.

        Certified: k is raised until ``||R22||_2``, with what rounding may add, is truly at most
        ``eps * ||Z||_2``; with ``max_entry``, whose swaps start anew at each k, a smaller k may
        have held too. Otherwise the proxy ``|r_{k+1,k+1} / r_11|`` decides, which is cheaper
        and usually, not always, too hopeful by a small factor only. ``dtype`` says that ``T`` will
        be stored in it, whose rounding the certificate then covers as well.
        """
        if not is_number(eps) or not 0 <= eps < math.inf:
            raise ArgumentError(f"eps={eps!r}; give a relative error of at least 0, such as 1e-3")
        if not certified:
            above = (self.proxy_errors > eps).nonzero()
            return self.at_rank(int(above.max()) + 1 if len(above) else 0, max_entry=max_entry)
        if eps >= 1:
            return self.at_rank(0)
        allowed = eps * self.spectral_norm
        # |r_{k+1,k+1}| <= ||R22||_2 rules out every k before this one
        nested = max_entry is None and self.diagonal_decreases
        low = int((self.diagonal > allowed).sum()) if nested else 0
        found, high, stride = None, self.n, 1
        while low < high:
            # strides double until one k holds, then the gap is halved
            k = min(low + stride - 1, self.n - 1) if found is None else (low + high) // 2
            tried = self.at_rank(k, max_entry=max_entry)
            if self._holds(tried, eps, dtype):
                high, found = k, tried
            else:
                low, stride = k + 1, 2 * stride
        return self.at_rank(high, max_entry=max_entry) if found is None else found

    def certified(self, k: int, eps: float, dtype: torch.dtype | None = None) -> bool:
        """Whether ``||Z - Z[:, kept] @ T||_2 <= eps * ||Z||_2`` at this k, rounding included."""
        return k == self.n or self._holds(self.at_rank(k), eps, dtype)

    def _holds(self, tried: Interpolation, eps: float, dtype: torch.dtype | None) -> bool:
        rounding = self.floor + (torch.finfo(dtype).eps if dtype is not None else 0.0)
        margin = (rounding * self.spectral_norm + self.unseen) * (1 + tried.T_norm)
        return spectral_norm_at_most(tried.residual, eps * self.spectral_norm - margin)

    @cached_property
    def diagonal_decreases(self) -> bool:
        """True of column pivoting, not of every ordering."""
        return bool((self.diagonal[1:] <= self.diagonal[:-1]).all())

    def _R22(self, k: int) -> Tensor:
        """What is left of the columns not kept: ``Z - Z[:, kept] @ T`` up to a rotation."""
        count = int(self.independent_counts[k])
        return self.R[count:, count:][:, self._dropped(k)]

    def _dropped(self, k: int) -> Tensor | slice:
        """Which columns behind the basis are not kept: all, unless dependent ones are kept."""
        count = int(self.independent_counts[k])
        if count == k:
            return slice(None)
        return ~torch.isin(self.columns[count:], self.order[:k])

    def _checked(self, k: int) -> int:
        if not is_whole(k) or not 0 <= k <= self.n:
            raise ArgumentError(f"k={k!r} of {self.n} columns; ask for a k from 0 to {self.n}")
        return int(k)

    def __repr__(self) -> str:
        return f"Ordering(n={self.n}, numerical_rank={self.numerical_rank})"


def suffix_sums(values: Tensor) -> Tensor:
    """(n + 1,) the sums of ``values[k:]`` for k = 0 ... n."""
    return torch.cat([values.flip(0).cumsum(0).flip(0), values.new_zeros(1)])
