"""One factorization, every answer: kept columns, ``T`` and errors at any k."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral, Real
from typing import NamedTuple

import torch
from torch import Tensor

from interpress.errors import ArgumentError

# Where T is so large that rounding in it is of this size, relative to Z, a smaller T is as exact.
_ROUNDING = 0.1


@dataclass(frozen=True, eq=False)
class Interpolation:
    """``Z ~= Z[:, kept] @ T`` with k of n columns kept.

    ``T[:, kept]`` is exactly the identity. Errors are absolute norms of ``Z - Z[:, kept] @ T``.
    """

    kept: Tensor  #: (k,) column indices, most important first
    T: Tensor  #: (k, n) interpolation matrix
    residual: Tensor = field(repr=False)  #: ``R22``: same singular values as Z - Z[:, kept] @ T

    @property
    def k(self) -> int:
        """How many columns are kept."""
        return self.T.shape[0]

    @property
    def n(self) -> int:
        """How many columns there were."""
        return self.T.shape[1]

    @cached_property
    def frobenius_error(self) -> float:
        """``||Z - Z[:, kept] @ T||_F``."""
        return float(torch.linalg.matrix_norm(self.residual)) if self.residual.numel() else 0.0

    @cached_property
    def spectral_error(self) -> float:
        """``||Z - Z[:, kept] @ T||_2``, computed (not bounded) the first time it is asked for."""
        return spectral_norm(self.residual)

    @cached_property
    def T_norm(self) -> float:
        """``||T||_F`` of the dropped columns: how much rounding in the kept ones can grow."""
        return math.sqrt(max(float(torch.linalg.matrix_norm(self.T)) ** 2 - self.k, 0.0))

    @property
    def largest_entry(self) -> float:
        """``max |T|`` of the dropped columns: how much of a kept one goes into another."""
        dropped = torch.ones(self.n, dtype=torch.bool, device=self.T.device)
        dropped[self.kept] = False
        entries = self.T[:, dropped]
        return float(entries.abs().max()) if entries.numel() else 0.0

    def __repr__(self) -> str:
        return (
            f"Interpolation(k={self.k}, n={self.n}, frobenius_error={self.frobenius_error:.3g}, "
            f"largest_entry={self.largest_entry:.3g})"
        )


class SvdBound(NamedTuple):
    """What no rank-k matrix can beat, in either norm."""

    spectral: float
    frobenius: float


@dataclass(frozen=True, eq=False)
class Ordering:
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
            from interpress.linalg.strong import bounded_interpolation

            return bounded_interpolation(self, self._checked(k), max_entry)
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


def is_whole(value: object) -> bool:
    """An integer of any library, and not a truth value."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """A real number of any library, and not a truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)


def as_square(matrix: Tensor, n: int, name: str) -> Tensor:
    """``matrix``, if it is a finite float n x n one."""
    if not isinstance(matrix, Tensor) or not matrix.is_floating_point():
        raise ArgumentError(f"{name} is not a float tensor; pass one of shape ({n}, {n})")
    if matrix.shape != (n, n):
        raise ArgumentError(f"{name} has shape {tuple(matrix.shape)}; it must be ({n}, {n})")
    if not bool(matrix.isfinite().all()):
        raise ArgumentError(f"{name} holds NaN or Inf; repair what it was made from")
    return matrix.detach()


def interpolation_matrix(
    kept: Tensor, rest: Tensor, coefficients: Tensor, basis: Tensor | None = None
) -> Tensor:
    """``T`` (k x n): the identity at ``kept``, ``coefficients`` of the ``basis`` rows elsewhere."""
    k, n = len(kept), len(rest) + coefficients.shape[0]
    by_column = coefficients.new_zeros(n, k)  # T.T, so that one column is one contiguous row
    if basis is None:
        by_column[rest] = coefficients.T
    else:
        by_column[rest[:, None], basis] = coefficients.T
    by_column[kept] = torch.eye(k, dtype=by_column.dtype, device=by_column.device)
    return by_column.T


def solve_upper(R11: Tensor, R12: Tensor) -> Tensor:
    """``R11^-1 @ R12`` for an upper-triangular ``R11``."""
    return torch.linalg.solve_triangular(R11, R12, upper=True)


def solve_truncated(R11: Tensor, R12: Tensor, floor: float) -> Tensor:
    """The smallest least-squares solution, for an ``R11`` that is singular to working precision."""
    U, sizes, Vh = torch.linalg.svd(R11)
    inverse = torch.where(sizes > floor * sizes[0], 1 / sizes, 0.0)
    return Vh.T @ (inverse[:, None] * (U.T @ R12))


def _normalised_gram(matrix: Tensor) -> tuple[Tensor, float]:
    """Gram matrix of the shorter side with unit trace, and the Frobenius norm taken out."""
    size = float(torch.linalg.matrix_norm(matrix)) if matrix.numel() else 0.0
    if size == 0.0:
        return matrix.new_zeros(0, 0), 0.0
    scaled = matrix / size
    return (scaled @ scaled.T if scaled.shape[0] <= scaled.shape[1] else scaled.T @ scaled), size


def spectral_norm(matrix: Tensor) -> float:
    """``||matrix||_2``; the largest eigenvalue of a Gram matrix has full relative precision."""
    gram, size = _normalised_gram(matrix)
    if size == 0.0:
        return 0.0
    return size * math.sqrt(max(float(torch.linalg.eigvalsh(gram)[-1]), 0.0))


def spectral_norm_at_most(matrix: Tensor, bound: float) -> bool:
    """Whether ``||matrix||_2 <= bound``, by one Cholesky instead of an eigenvalue problem.

    ``bound**2 * I - M M'`` has a Cholesky factor exactly when no singular value exceeds the bound.
    """
    gram, size = _normalised_gram(matrix)
    if size <= bound:
        return True
    if bound <= 0:
        return False
    shifted = -gram
    shifted.diagonal().add_((bound / size) ** 2)
    return int(torch.linalg.cholesky_ex(shifted).info) == 0
