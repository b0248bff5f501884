"""The interpolation for one k, which takes less work than the ordering of all columns.

The columns are picked by a pivoted Cholesky factorisation of the Gram matrix, in the dtype of the
data. They are the columns of QR with column pivoting, at little more than the cost of one matrix
product.

A Gram matrix squares the condition number. Where the pivots become too small for it, the columns
picked so far are projected out, and the residual gets a Gram matrix of its own. A matrix that needs
a third Gram matrix is left to :func:`~interpress.linalg.pivoting.order_by_pivoting`.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from interpress.linalg.cholesky import pivoted_in_place
from interpress.linalg.condition import well_conditioned_count
from interpress.linalg.cpu_blas import solve_upper, subtract_product, upper_gram
from interpress.linalg.interpolation import Interpolation, interpolation_matrix
from interpress.linalg.padding import padded, padding
from interpress.linalg.precision import LARGEST, SMALLEST
from interpress.linalg.threads import threads_for_scipy_only

# With fewer columns, the ordering of all columns takes about as long.
_FEWEST_COLUMNS = 256
# Rows up to which a float32 Gram matrix keeps the accuracy that `_LIMITS` assumes.
_MOST_ROWS = 2**14
_STAGES = 2  # Gram matrices; with more of them, the ordering of all columns is faster
# For each dtype: the largest condition number (of columns scaled to length one) for one Gram
# matrix, and the smallest length of a residual, relative to the longest column of A. With them, the
# errors stayed within 5 % of those of pivoted QR in `python -m benchmarks linalg`.
_LIMITS = {torch.float32: (2e2, 3e-4), torch.float64: (3e5, 1e-9)}
# Lengths of the longest column whose square, and those of much shorter columns, the dtype holds.
_LENGTHS = {torch.float32: (1e-12, 1e15), torch.float64: (SMALLEST, LARGEST)}


def interpolation_at_rank(A: Tensor, k: int) -> Interpolation | None:
    """Return `A ~= A[:, kept] @ T` with k columns, or None if `A` is too small or too hard.

    `A` is a float32 or float64 matrix. The selections are nested in k. The result keeps a copy of
    `A`, from which its errors are computed when they are first read.
    """
    rows, n = A.shape
    if A.device.type != "cpu" or n < _FEWEST_COLUMNS or not n <= rows <= _MOST_ROWS or k == 0:
        return None
    with threads_for_scipy_only(n):
        copy = padded(A)  # also because the caller may change A before the errors are read
        picked = _pick_columns(copy, n, k)
        if picked is None:
            return None
        kept, dropped, coefficients = picked
        T = interpolation_matrix(kept, dropped, coefficients)
    return Interpolation(kept, T, partial(_residual, copy, *picked))


def _residual(A: Tensor, kept: Tensor, dropped: Tensor, coefficients: Tensor) -> Tensor:
    """Return the dropped columns of `A - A[:, kept] @ T` in float64."""
    A = A.double()
    return A[:, dropped].addmm_(A[:, kept], coefficients.double(), alpha=-1)


def _pick_columns(A: Tensor, n: int, k: int) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return k columns, the other columns, and the coefficients of the others on the k columns.

    `A` has n columns and columns of zeros behind them.
    """
    condition, shortest = _LIMITS[A.dtype]
    residual, columns = A, torch.arange(n)
    kept, T = columns[:0], A[:0]
    longest_at_start = 0.0
    for _ in range(_STAGES):
        G = upper_gram(residual)
        longest = math.sqrt(float(G.diagonal().max()))
        longest_at_start = longest_at_start or longest
        if not _LENGTHS[A.dtype][0] <= longest_at_start <= _LENGTHS[A.dtype][1]:
            return None  # too small, too large, or NaN
        smallest = max(longest / condition, shortest * longest_at_start)
        if longest <= smallest:
            return None
        stage = pivoted_in_place(G, len(columns), smallest**2, k - len(kept))
        count = well_conditioned_count(stage.R, condition)
        basis, outside = stage.order[:count], stage.order[count:]
        coefficients = solve_upper(stage.R[:count, :count], stage.R[:count, count:])
        # A ~= A[:, kept] @ T, and the residual of that ~= residual[:, basis] @ coefficients
        T = torch.cat([_without(T, basis, outside, coefficients), coefficients])
        kept, columns = torch.cat([kept, columns[basis]]), columns[outside]
        if len(kept) == k:
            return kept, columns, T
        zeros = torch.full((padding(len(outside), A.element_size()),), len(stage.order))
        padded_coefficients = torch.nn.functional.pad(coefficients, (0, len(zeros)))
        residual = _without(residual, basis, torch.cat([outside, zeros]), padded_coefficients)
    return None


def _without(matrix: Tensor, basis: Tensor, outside: Tensor, coefficients: Tensor) -> Tensor:
    """Return `matrix[:, outside] - matrix[:, basis] @ coefficients`."""
    return subtract_product(
        matrix.index_select(1, outside), matrix.index_select(1, basis), coefficients
    )
