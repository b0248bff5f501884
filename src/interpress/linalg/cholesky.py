"""Greedy Cholesky: pick a column, eliminate it, repeat. All of column selection is this.

For ``G = Z.T @ Z`` the rows it produces are the rows of the triangular factor of ``Z`` with its
columns in the picked order, so pivoted Cholesky of ``G`` *is* pivoted QR of ``Z``. What differs
between methods is only which column is picked next:

- the largest remaining norm (Businger-Golub column pivoting): :func:`pivoted_cholesky`;
- the largest drop of ``||(Z - Z[:, kept] @ T) @ U||``: :func:`weighted_cholesky`;
- the one the caller says: :func:`cholesky_in_order`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from scipy.linalg import lapack
from torch import Tensor

_BLOCK = 64  # pivots between two updates of the whole matrix


class Pivots(NamedTuple):
    """``count`` columns were eliminated; ``order`` lists them first and the dependent rest after.

    ``R`` (count x n, upper trapezoidal, columns as in ``order``) is the triangular factor.
    """

    order: Tensor
    R: Tensor

    @property
    def count(self) -> int:
        return self.R.shape[0]


def pivoted_cholesky(G: Tensor, smallest: float) -> Pivots:
    """Always take the largest remaining diagonal; stop where none exceeds ``smallest``."""
    if G.device.type == "cpu":
        return _lapack(G, smallest)
    return _eliminate(G.clone(), smallest)


def weighted_cholesky(G: Tensor, H: Tensor, smallest: float) -> Pivots:
    """Take the column that lowers ``trace(S @ H)`` most, ``S`` what is left of ``G``.

    With ``H = U @ U.T`` that trace is ``||(Z - Z[:, kept] @ T) @ U||_F ** 2``, and keeping ``j``
    lowers it by ``(S H S)[j, j] / S[j, j]``. Both ``S`` and ``F = S H S`` lose a low-rank term per
    pick, so the whole ordering costs a few matrix products:

        S <- S - v v'             v = S[:, j] / sqrt(S[j, j])
        F <- F - v q' - q v'      q = F[:, j] / sqrt(S[j, j]) - v * F[j, j] / (2 S[j, j])
    """
    return _eliminate(G.clone(), smallest, F=G @ H @ G)


def cholesky_in_order(G: Tensor, order: Tensor, smallest: float) -> Pivots:
    """Take the columns as given, passing over those that depend on earlier ones."""
    return _eliminate(G.clone(), smallest, given=order)


def _lapack(G: Tensor, smallest: float) -> Pivots:
    # The lower factor in Fortran order is the upper one in C order: rows come out contiguous.
    packed, pivots, count, _ = lapack.dpstrf(G.numpy().T, tol=max(smallest, 0.0), lower=1)
    order = torch.from_numpy(pivots.astype("int64") - 1)
    return Pivots(order, torch.from_numpy(packed.T[:count]).triu())


def _eliminate(
    S: Tensor, smallest: float, F: Tensor | None = None, given: Tensor | None = None
) -> Pivots:
    """The same in plain torch, ``S`` and ``F`` overwritten; the host never waits for a pivot."""
    n = len(S)
    residual = S.diagonal().clone()  # what is left of each column; -inf once it is taken
    gain = None if F is None else F.diagonal().clone()
    order = torch.empty(n, dtype=torch.int64, device=S.device)
    rows = torch.zeros_like(S)
    others = None if F is None else torch.zeros(min(_BLOCK, n), n, dtype=S.dtype, device=S.device)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        for step in range(start, stop):
            j = _next(residual, gain, smallest) if given is None else given[step : step + 1]
            done = rows[start:step]
            size = residual[j]
            scale = torch.where(size > smallest, size, torch.inf).rsqrt()  # 0: dependent, no row
            live = scale * (residual > -torch.inf)
            v = torch.addmv(S[j][0], done.T, done[:, j][:, 0], alpha=-1) * live
            residual.addcmul_(v, v, value=-1)
            if F is not None and gain is not None and others is not None:
                ready = others[: step - start]
                q = torch.addmv(F[j][0], ready.T, done[:, j][:, 0], alpha=-1)
                q = torch.addmv(q, done.T, ready[:, j][:, 0], alpha=-1) * live
                q = q - v * (0.5 * gain[j] * scale * scale)
                gain.addcmul_(v, q, value=-2)
                others[step - start] = q
            residual[j] = -torch.inf
            rows[step] = v
            order[step : step + 1] = j
        block = rows[start:stop]
        S.addmm_(block.T, block, alpha=-1)
        if F is not None and others is not None:
            paired = others[: stop - start]
            F.addmm_(block.T, paired, alpha=-1).addmm_(paired.T, block, alpha=-1)
    return _gathered(order, rows)


def _next(residual: Tensor, gain: Tensor | None, smallest: float) -> Tensor:
    """Index of the best column; whatever is still independent comes before what is not."""
    if gain is None:
        return residual.argmax(keepdim=True)
    score = gain.clamp(min=0) / residual
    return torch.where(residual > smallest, score, residual - smallest - 1).argmax(keepdim=True)


def _gathered(order: Tensor, rows: Tensor) -> Pivots:
    """Drop the empty rows of dependent columns and move those columns to the end."""
    independent = rows.gather(1, order[:, None])[:, 0] > 0
    count = int(independent.sum())
    behind = (~independent).long().argsort(stable=True)
    order = order[behind]
    return Pivots(order, rows[behind[:count]].index_select(1, order))
