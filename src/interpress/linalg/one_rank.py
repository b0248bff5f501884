"""The interpolation for one k, which takes less work than the ordering of all columns.

The columns are picked by a pivoted Cholesky factorisation of the Gram matrix, in the dtype of the
data. They are the columns of QR with column pivoting, at little more than the cost of one matrix
product.

A Gram matrix squares the condition number. Where the pivots become too small for it, the columns
picked so far are projected out, and the residual gets a Gram matrix of its own. What rounding left
of the picked columns in the residual is measured, and bounds the next pivots. A matrix that needs a
third Gram matrix, or pivots below that bound, is left to
:func:`~interpress.linalg.pivoting.order_by_pivoting`.
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
# Rows up to which a float32 Gram matrix keeps the accuracy that `_CONDITIONS` assumes.
_MOST_ROWS = 2**14
_STAGES = 2  # Gram matrices; with more of them, the ordering of all columns is faster
# Largest condition number (of columns scaled to length one) for one Gram matrix. Up to it, the
# errors differ from those of pivoted QR no more than two runs of pivoted QR in that dtype do: by
# 0.4 % on average. At twice the float32 limit, they are up to 6 % larger.
_CONDITIONS = {torch.float32: 1.6e3, torch.float64: 3e5}
# The condition number is usually this many times the ratio of the longest to the last pivot.
_CONDITION_PER_RATIO = 4
# Residuals are resolved down to this many times the part of them that rounding left in the span of
# the picked columns. That part is then at most 15 % of them and raises the error by at most 1 %.
_RESOLVED = 7
_PROBES = 4  # random vectors that measure that part
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
    limit = _CONDITIONS[A.dtype]
    residual, columns = A, torch.arange(n)
    kept, T = columns[:0], A[:0]
    rounding = 0.0
    for _ in range(_STAGES):
        G = upper_gram(residual)
        longest = math.sqrt(float(G.diagonal().max()))
        if not kept.numel() and not _LENGTHS[A.dtype][0] <= longest <= _LENGTHS[A.dtype][1]:
            return None  # too small, too large, or NaN
        smallest = max(longest * _CONDITION_PER_RATIO / limit, _RESOLVED * rounding)
        if longest <= smallest:
            return None
        stage = pivoted_in_place(G, len(columns), smallest**2, k - len(kept))
        count = well_conditioned_count(stage.R, limit)
        basis, outside = stage.order[:count], stage.order[count:]
        R11, R12 = stage.R[:count, :count], stage.R[:count, count:]
        coefficients = solve_upper(R11, R12)
        # A ~= A[:, kept] @ T, and the residual of that ~= residual[:, basis] @ coefficients
        earlier = subtract_product(
            T.index_select(1, outside), T.index_select(1, basis), coefficients
        )
        T = torch.cat([earlier, coefficients])
        kept, columns = torch.cat([kept, columns[basis]]), columns[outside]
        if len(kept) == k:
            return kept, columns, T
        removed = residual.index_select(1, basis)
        zeros = torch.full((padding(len(outside), A.element_size()),), len(stage.order))
        residual = subtract_product(
            residual.index_select(1, torch.cat([outside, zeros])),
            removed,
            torch.nn.functional.pad(coefficients, (0, len(zeros))),
        )
        rounding = _length_in_span(residual, removed, R11) / math.sqrt(len(outside))
    return None


def _length_in_span(residual: Tensor, basis: Tensor, R11: Tensor) -> float:
    """Return an estimate of `||Q.T @ residual||_F`, where `basis = Q @ R11`."""
    generator = torch.Generator().manual_seed(0)
    probes = torch.randn(_PROBES, residual.shape[1], generator=generator, dtype=residual.dtype)
    products = (probes @ residual.T) @ basis  # (probes, basis); the transpose is slower
    coordinates = torch.linalg.solve_triangular(R11.T, products.T, upper=False)
    return float(torch.linalg.matrix_norm(coordinates)) / math.sqrt(_PROBES)
