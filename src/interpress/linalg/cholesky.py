"""Greedy Cholesky: pick a column, eliminate it, repeat. All of column selection is this.

For ``G = Z.T @ Z`` the rows it produces are the rows of the triangular factor of ``Z`` with its
columns in the picked order, so pivoted Cholesky of ``G`` *is* pivoted QR of ``Z``. What differs
between methods is only which column is picked next:

- the largest remaining norm (Businger-Golub column pivoting): :func:`pivoted_cholesky`;
- the largest drop of ``||(Z - Z[:, kept] @ T) @ U||``: :func:`weighted_cholesky`;
- the one the caller says: :func:`cholesky_in_order`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.linalg import lapack
from torch import Tensor
from torch.nn.functional import threshold

_BLOCK = 32  # pivots between two updates of the whole matrix


@dataclass(frozen=True)
class Pivots:
    """``count`` columns were eliminated; ``order`` lists them first and the dependent rest after.

    ``R`` (count x n, upper trapezoidal, columns as in ``order``) is the triangular factor.
    """

    order: Tensor
    R: Tensor

    @property
    def count(self) -> int:
        """How many columns are independent."""
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
    panel = _Panel(S, smallest, F, picking=given is None)
    order = torch.empty(n, dtype=torch.int64, device=S.device) if given is None else given.clone()
    rows = torch.empty_like(S)
    full = None
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        width = stop - start
        if given is not None:
            panel.picked[:width] = order[start:stop]
        if width == _BLOCK and start > 0:  # the first one has warmed up
            full = full or _repeatable(panel)
            full()
        else:
            panel.eliminate(width)
        order[start:stop] = panel.picked[:width]
        rows[start:stop] = panel.rows[:width]
    return _gathered(order, rows)


class _Panel:
    """Pick and eliminate up to ``_BLOCK`` columns, then update all of ``S`` (and ``F``) at once.

    Only tensors of fixed shape and place are touched, so a GPU can record it once and replay it.
    """

    def __init__(self, S: Tensor, smallest: float, F: Tensor | None, picking: bool) -> None:
        n = len(S)
        self.S, self.F, self.smallest, self.picking = S, F, smallest, picking
        self.residual = S.diagonal().clone()  # what is left of each column; -inf once it is taken
        self.picked = torch.zeros(min(_BLOCK, n), dtype=torch.int64, device=S.device)
        self.rows = S.new_zeros(min(_BLOCK, n), n)
        self.size = S.new_zeros(1)
        if F is not None:
            self.gain = F.diagonal().clone()
            self.partners = torch.zeros_like(self.rows)

    def eliminate(self, width: int = _BLOCK) -> None:
        for step in range(width):
            j = self.picked[step : step + 1]
            size = self._pick(j)
            scale = threshold(size, self.smallest, math.inf).rsqrt_()  # 0 where j is dependent
            done = self.rows[:step]
            weights = done.index_select(1, j)[:, 0]
            v = self.S.index_select(0, j)[0].addmv_(done.T, weights, alpha=-1)
            v = torch.mul(v, scale, out=self.rows[step])
            self.residual.addcmul_(v, v, value=-1).scatter_(0, j, -math.inf)
            if self.F is not None:
                partners = self.partners[:step]
                q = self.F.index_select(0, j)[0].addmv_(partners.T, weights, alpha=-1)
                q = q.addmv_(done.T, partners.index_select(1, j)[:, 0], alpha=-1)
                q = torch.mul(q, scale, out=self.partners[step])
                q.addcmul_(v, self.gain.index_select(0, j) * scale * scale, value=-0.5)
                self.gain.addcmul_(v, q, value=-2)
        V = self.rows[:width]
        self.S.addmm_(V.T, V, alpha=-1)
        if self.F is not None:
            Q = self.partners[:width]
            self.F.addmm_(V.T, Q, alpha=-1).addmm_(Q.T, V, alpha=-1)

    def _pick(self, j: Tensor) -> Tensor:
        """Write the next column's index into ``j``; what is left of that column is returned.

        Whatever is still independent comes before what is not.
        """
        if self.picking and self.F is None:
            return torch.max(self.residual, dim=0, keepdim=True, out=(self.size, j)).values
        if self.picking:
            score = self.gain.clamp(min=0) / self.residual
            behind = self.residual - self.smallest - 1
            ranked = torch.where(self.residual > self.smallest, score, behind)
            torch.max(ranked, dim=0, keepdim=True, out=(self.size, j))
        return self.residual.index_select(0, j)


def _repeatable(panel: _Panel) -> Callable[[], None]:
    """On a GPU, one recorded launch of the whole panel instead of a thousand small ones."""
    device = panel.S.device
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return panel.eliminate
    graph = torch.cuda.CUDAGraph()
    recording = torch.cuda.Stream(device)
    recording.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.device(device), torch.cuda.stream(recording):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            panel.eliminate()
        finally:
            graph.capture_end()
    torch.cuda.current_stream(device).wait_stream(recording)
    return graph.replay


def _gathered(order: Tensor, rows: Tensor) -> Pivots:
    """Drop the empty rows of dependent columns and move those columns to the end."""
    independent = rows.gather(1, order[:, None])[:, 0] > 0
    count = int(independent.sum())
    behind = (~independent).long().argsort(stable=True)
    order = order[behind]
    # below the diagonal there is rounding from columns that were already taken
    return Pivots(order, rows[behind[:count]].index_select(1, order).triu_())
