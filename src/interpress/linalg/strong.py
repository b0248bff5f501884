"""Strong rank-revealing selection: swap columns until every entry of ``T`` is bounded.

M. Gu and S. C. Eisenstat, "Efficient algorithms for computing a strong rank-revealing QR
factorization", SIAM J. Sci. Comput. 17 (1996). Exchanging a kept column i for a dropped column j
multiplies the volume of the kept columns by

    sqrt(T[i, j]**2 + (omega_i * gamma_j)**2)

with omega_i the norm of row i of the kept columns' pseudo-inverse and gamma_j the norm of dropped
column j's residual. Exchanging while that exceeds the bound ends, since volumes are finite in
number and each is larger than the last by the bound; what remains has ``|T| <= bound`` and singular
values within ``sqrt(1 + bound**2 * k * (n - k))`` of the best possible.
"""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.errors import InterpressError
from interpress.linalg.factor import triangle
from interpress.linalg.interpolation import Interpolation, interpolation_matrix
from interpress.linalg.precision import largest_magnitude
from interpress.linalg.triangular import solve_upper

_SLACK = 1e-8  # rounding allowed over the bound
_SWEEPS = 20  # fresh starts of the swap updates; one is the rule


def bounded_interpolation(
    R: Tensor, columns: Tensor, count: int, dependent: Tensor, max_entry: float
) -> Interpolation:
    """Exchange columns until ``max |T| <= max_entry``.

    ``R`` is a triangular factor whose columns are ``columns`` of ``Z``. The first ``count`` of them
    are the basis to start from. ``dependent`` columns are kept too, but help no other column.
    """
    columns = columns.clone()
    scale = largest_magnitude(R) or 1.0
    R = R / scale  # the updates below square squares, which would overflow
    bound = max_entry * (1 + _SLACK)
    for _ in range(_SWEEPS):
        T = solve_upper(R[:count, :count], R[:count, count:])
        swapped = _exchange(R, T, count, bound) if T.numel() else None
        if swapped is None:
            if T.numel() and not float(T.abs().max()) <= bound:
                break  # T holds NaN: no comparison means anything
            return _assemble(columns, count, dependent, T, R[count:, count:] * scale)
        columns, R = columns[swapped], triangle(R[:, swapped])
    raise InterpressError(
        f"rounding keeps entries of T above max_entry={max_entry} after {_SWEEPS} sweeps of swaps "
        f"with k={count + len(dependent)} columns kept; raise max_entry or lower k"
    )


def _exchange(R: Tensor, T: Tensor, count: int, bound: float) -> Tensor | None:
    """The column permutation of ``R`` after all swaps (None: no swap), each an O(n^2) update.

    ``dual`` (k x r) is the pseudo-inverse of the kept columns, ``E`` (r x dropped) the residuals.
    No inverse of a Gram matrix appears, so the condition number is never squared.
    """
    r, n = R.shape
    dual = R.new_zeros(count, r)
    identity = torch.eye(count, dtype=R.dtype, device=R.device)
    dual[:, :count] = solve_upper(R[:count, :count], identity)
    E = R[:, count:].clone()
    E[:count] = 0
    T = T.clone()
    position = torch.arange(n, device=R.device)
    swaps = 0
    while swaps < 100 + 10 * n:  # rounding could keep a sweep from ending; the next starts fresh
        growth = T.square() + torch.outer(dual.square().sum(1), E.square().sum(0))
        i, j = divmod(int(growth.argmax()), n - count)
        if not float(growth[i, j]) > bound**2:
            break
        position[i], position[count + j] = position[count + j].clone(), position[i].clone()
        _swap(dual, E, T, i, j)
        swaps += 1
    return position if swaps else None


def _swap(dual: Tensor, E: Tensor, T: Tensor, i: int, j: int) -> None:
    """Drop kept column i, then keep dropped column j in its place (all in place)."""
    # Without i, its residual is p / |p|^2; what it explained is shared out among the others.
    p = dual[i] / dual[i].square().sum()
    share = -(dual @ p)  # (k,)
    share[i] = 0
    lost = T[i].clone()  # (dropped,)
    T += torch.outer(share, lost)
    E += torch.outer(p, lost)
    dual += torch.outer(share, dual[i].clone())
    # With j, everything along its residual e is explained by it. Column slot j becomes i's.
    e = E[:, j].clone()
    q = e / e.square().sum()
    through = T[:, j].clone()
    through[i] = 0
    E[:, j], T[:, j] = p, share
    gained = q @ E  # (dropped,)
    T[i] = 0
    T -= torch.outer(through, gained)
    T[i] = gained
    E -= torch.outer(e, gained)
    dual -= torch.outer(through, q)
    dual[i] = q


def _assemble(
    columns: Tensor, count: int, extra: Tensor, T: Tensor, residual: Tensor
) -> Interpolation:
    taken = torch.zeros(len(columns), dtype=torch.bool, device=columns.device)
    taken[columns[:count]] = True
    if len(extra) and bool(taken[extra].any()):  # a swap brought some of the extras in already
        free = columns[count:]
        extra = torch.cat([extra[~taken[extra]], free[~torch.isin(free, extra)]])[: len(extra)]
    kept = torch.cat([columns[:count], extra])
    basis = torch.arange(count, device=T.device) if len(extra) else None
    residual = residual[:, ~torch.isin(columns[count:], extra)]
    return Interpolation(kept, interpolation_matrix(kept, columns[count:], T, basis), residual)
