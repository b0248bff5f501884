"""The interpolation for one k, which needs less work than the ordering of all columns.

The columns are picked by a pivoted Cholesky factorisation of the Gram matrix in the dtype of the
data. It picks the columns of QR with column pivoting, but takes the time of one matrix product.

A Gram matrix squares the condition number. If the pivots become too small for it, the columns
picked so far are projected out, and the residual gets a Gram matrix of its own. A matrix that needs
more than that is left to :func:`~interpress.linalg.pivoting.order_by_pivoting`.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from interpress.linalg.cholesky import pivoted_cholesky
from interpress.linalg.condition import well_conditioned_count
from interpress.linalg.factor import add_gram
from interpress.linalg.interpolation import Interpolation, interpolation_matrix
from interpress.linalg.precision import largest_magnitude
from interpress.linalg.triangular import solve_upper

# Below this many columns, the ordering of all columns takes no more time.
_FEWEST_COLUMNS = 256
# Rows up to which the rounding errors of a float32 Gram matrix stay near those of one product.
_MOST_ROWS = 2**14
_STAGES = 2  # Gram matrices per decomposition; more of them take longer than one ordering

# For each dtype: the largest condition number of the columns (scaled to length one) that one Gram
# matrix picks, and the smallest column of a residual, relative to the longest column of the matrix.
# Rounding changes the error of the interpolation by about eps * condition / smallest, squared.
_LIMITS = {torch.float32: (2e2, 3e-4), torch.float64: (3e4, 1e-9)}
# Magnitudes whose squares and sums of squares stay normal numbers of the dtype.
_MAGNITUDES = {torch.float32: (1e-12, 1e15), torch.float64: (1e-140, 1e140)}


def interpolation_at_rank(A: Tensor, k: int) -> Interpolation | None:
    """Return `A ~= A[:, kept] @ T` with k columns, or None if `A` is too small or too hard.

    `A` is float32 or float64 and must not change afterwards: the errors are computed from it when
    they are first read. The columns are picked as by QR with column pivoting, so they are nested
    in k.
    """
    rows, n = A.shape
    low, high = _MAGNITUDES[A.dtype]
    if A.device.type != "cpu" or n < _FEWEST_COLUMNS or not n <= rows <= _MOST_ROWS or k == 0:
        return None
    if not low <= largest_magnitude(A) <= high:
        return None
    picked = _pick_columns(A, k)
    if picked is None:
        return None
    kept, dropped, coefficients = picked
    T = interpolation_matrix(kept, dropped, coefficients)
    return Interpolation(kept, T, partial(_residual, A, kept, dropped, coefficients))


def _residual(A: Tensor, kept: Tensor, dropped: Tensor, coefficients: Tensor) -> Tensor:
    """Return the dropped columns of `A - A[:, kept] @ T` in float64."""
    A = A.double()
    return torch.addmm(A[:, dropped], A[:, kept], coefficients.double(), alpha=-1)


def _pick_columns(A: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return k columns, the other columns, and the coefficients of the others on the k columns."""
    condition, smallest_residual = _LIMITS[A.dtype]
    kept, columns = torch.arange(0), torch.arange(A.shape[1])
    T, residual, longest_at_start = A[:0], A, 0.0
    for _ in range(_STAGES):
        G = torch.empty(len(columns), len(columns), dtype=A.dtype)
        add_gram(G, residual, fresh=True)
        longest = float(G.diagonal().max()) ** 0.5
        longest_at_start = longest_at_start or longest
        smallest = max(longest / condition, smallest_residual * longest_at_start)
        stage = pivoted_cholesky(G, smallest**2)
        count = min(well_conditioned_count(stage.R, condition), k - len(kept))
        if longest <= smallest or not count:
            return None
        basis, outside = stage.order[:count], stage.order[count:]
        coefficients = solve_upper(stage.R[:count, :count], stage.R[:count, count:])
        # With A ~= A[:, kept] @ T and residual ~= residual[:, basis] @ coefficients
        T = torch.cat([T[:, outside] - T[:, basis] @ coefficients, coefficients])
        kept, columns = torch.cat([kept, columns[basis]]), columns[outside]
        if len(kept) == k:
            return kept, columns, T
        residual = residual[:, outside].addmm_(residual[:, basis], coefficients, alpha=-1)
    return None
