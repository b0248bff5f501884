"""Strong rank-revealing selection: exchange columns until every entry of `T` is bounded.

M. Gu and S. C. Eisenstat, "Efficient algorithms for computing a strong rank-revealing QR
factorization", SIAM J. Sci. Comput. 17 (1996). Exchanging a kept column i for a dropped column j
multiplies the volume of the kept columns by

    sqrt(T[i, j]**2 + (omega_i * gamma_j)**2)

where omega_i is the norm of row i of the pseudo-inverse of the kept columns, and gamma_j is the
norm of the residual of dropped column j. Columns are exchanged while this factor exceeds the
bound. The loop ends, because every exchange multiplies the volume by more than the bound and there
are finitely many selections. Afterwards `|T| <= bound`, and the singular values are within
`sqrt(1 + bound**2 * k * (n - k))` of the best possible ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.errors import InterpressError
from interpress.linalg.factor import triangle
from interpress.linalg.interpolation import Interpolation, interpolation_matrix
from interpress.linalg.precision import largest_magnitude
from interpress.linalg.triangular import solve_upper

_SLACK = 1e-8  # relative rounding error by which an entry may exceed the bound
_SWEEPS = 20  # how often the updates restart from a fresh factorisation; one sweep usually suffices


def bounded_interpolation(
    R: Tensor, columns: Tensor, count: int, dependent: Tensor, max_entry: float
) -> Interpolation:
    """Exchange columns until `max |T| <= max_entry` and return the interpolation.

    `R` is a triangular factor of `Z[:, columns]`. The first `count` columns are the initial basis.
    The `dependent` columns are kept too, but no other column is interpolated from them.
    """
    columns = columns.clone()
    scale = largest_magnitude(R) or 1.0
    R = R / scale  # the updates compute fourth powers, which could overflow
    bound = max_entry * (1 + _SLACK)
    for _ in range(_SWEEPS):
        T = solve_upper(R[:count, :count], R[:count, count:])
        permutation = _exchange(R, T, count, bound) if T.numel() else None
        if permutation is None:
            if T.numel() and not float(T.abs().max()) <= bound:
                break  # T holds NaN, with which every comparison is False
            return _assemble(columns, count, dependent, T, R[count:, count:] * scale)
        columns, R = columns[permutation], triangle(R[:, permutation])
    raise InterpressError(
        f"rounding errors keep entries of T above max_entry={max_entry} after {_SWEEPS} sweeps of "
        f"swaps with k={count + len(dependent)} columns kept; raise max_entry or lower k"
    )


def _exchange(R: Tensor, T: Tensor, count: int, bound: float) -> Tensor | None:
    """Return the column permutation of `R` after all swaps, or None if there was no swap.

    Each swap is an O(n^2) update. `dual` (k x r) is the pseudo-inverse of the kept columns and `E`
    (r x dropped) holds the residuals. No Gram matrix is inverted, so the condition number is not
    squared.
    """
    r, n = R.shape
    dual = R.new_zeros(count, r)
    identity = torch.eye(count, dtype=R.dtype, device=R.device)
    dual[:, :count] = solve_upper(R[:count, :count], identity)
    E = R[:, count:].clone()
    E[:count] = 0
    T = T.clone()
    permutation = torch.arange(n, device=R.device)
    swaps = 0
    while swaps < 100 + 10 * n:  # rounding may prevent the end; the next sweep starts afresh
        growth = T.square() + torch.outer(dual.square().sum(1), E.square().sum(0))
        i, j = divmod(int(growth.argmax()), n - count)
        if not float(growth[i, j]) > bound**2:
            break
        kept_column, dropped_column = permutation[i].clone(), permutation[count + j].clone()
        permutation[i], permutation[count + j] = dropped_column, kept_column
        _swap(dual, E, T, i, j)
        swaps += 1
    return permutation if swaps else None


def _swap(dual: Tensor, E: Tensor, T: Tensor, i: int, j: int) -> None:
    """Drop kept column i and keep dropped column j instead; update all three tensors in place."""
    # p is the residual of column i on the other kept columns, which replace it in part.
    p = dual[i] / dual[i].square().sum()
    replacement = -(dual @ p)  # (k,) coefficients of column i on the other kept columns
    replacement[i] = 0
    removed_row = T[i].clone()  # (dropped,)
    T += torch.outer(replacement, removed_row)
    E += torch.outer(p, removed_row)
    dual += torch.outer(replacement, dual[i].clone())
    # Column j explains the direction of its residual e. Column i takes the slot of column j.
    e = E[:, j].clone()
    q = e / e.square().sum()
    coefficients = T[:, j].clone()  # (k,) of column j
    coefficients[i] = 0
    E[:, j], T[:, j] = p, replacement
    new_row = q @ E  # (dropped,)
    T[i] = 0
    T -= torch.outer(coefficients, new_row)
    T[i] = new_row
    E -= torch.outer(e, new_row)
    dual -= torch.outer(coefficients, q)
    dual[i] = q


def _assemble(
    columns: Tensor, count: int, dependent: Tensor, T: Tensor, residual: Tensor
) -> Interpolation:
    """Return the interpolation with the basis and as many `dependent` columns as given."""
    in_basis = torch.zeros(len(columns), dtype=torch.bool, device=columns.device)
    in_basis[columns[:count]] = True
    if len(dependent) and bool(in_basis[dependent].any()):
        # a swap moved some dependent columns into the basis; keep other columns in their place
        outside = columns[count:]
        candidates = [dependent[~in_basis[dependent]], outside[~torch.isin(outside, dependent)]]
        dependent = torch.cat(candidates)[: len(dependent)]
    kept = torch.cat([columns[:count], dependent])
    basis = torch.arange(count, device=T.device) if len(dependent) else None
    residual = residual[:, ~torch.isin(columns[count:], dependent)]
    T = interpolation_matrix(kept, columns[count:], T, basis)
    return Interpolation(kept, T, lambda: residual)
