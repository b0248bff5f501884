"""Greedy Cholesky: pick a column, eliminate it, repeat. All of column selection is this.

For ``G = Z.T @ Z`` the rows it produces are the rows of the triangular factor of ``Z`` with its
columns in the picked order, so pivoted Cholesky of ``G`` *is* pivoted QR of ``Z``. What differs
between methods is only which column is picked next:

- the largest remaining norm (Businger-Golub column pivoting): :func:`pivoted_cholesky`;
- the largest drop of ``||(Z - Z[:, kept] @ T) @ U||``: :func:`weighted_cholesky`;
- the one the caller says: :func:`cholesky_in_order`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.linalg import lapack
from torch import Tensor, inf
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
    return _eliminate(G, smallest)


def weighted_cholesky(G: Tensor, H: Tensor, smallest: float) -> Pivots:
    """Take the column that lowers ``trace(S @ H)`` most, ``S`` what is left of ``G``.

    With ``H = U @ U.T`` that trace is ``||(Z - Z[:, kept] @ T) @ U||_F ** 2``, and keeping ``j``
    lowers it by ``(S H S)[j, j] / S[j, j]``. Both ``S`` and ``F = S H S`` lose a low-rank term per
    pick, so the whole ordering costs a few matrix products:

        S <- S - v v'             v = S[:, j] / sqrt(S[j, j])
        F <- F - v q' - q v'      q = F[:, j] / sqrt(S[j, j]) - v * F[j, j] / (2 S[j, j])
    """
    return _eliminate(G, smallest, F=G @ H @ G)


def cholesky_in_order(G: Tensor, order: Tensor, smallest: float) -> Pivots:
    """Take the columns as given, passing over those that depend on earlier ones."""
    return _eliminate(G, smallest, given=order)


def _lapack(G: Tensor, smallest: float) -> Pivots:
    # The lower factor in Fortran order is the upper one in C order: rows come out contiguous.
    packed, pivots, count, _ = lapack.dpstrf(G.numpy().T, tol=max(smallest, 0.0), lower=1)
    order = torch.from_numpy(pivots.astype("int64") - 1)
    return Pivots(order, torch.from_numpy(packed.T[:count]).triu())


def _eliminate(
    G: Tensor, smallest: float, F: Tensor | None = None, given: Tensor | None = None
) -> Pivots:
    """The same in plain torch; the host never waits for a pivot."""
    n = len(G)
    block = min(n, _BLOCK if n < 8192 else 2 * _BLOCK)
    panel = _Panel(G, smallest, F, given is None, block)
    order = torch.empty(n, dtype=torch.int64, device=G.device) if given is None else given.clone()
    sizes = G.new_empty(n)
    rows = torch.empty_like(G)
    full = None
    for start in range(0, n, block):
        width = min(block, n - start)
        here = slice(start, start + width)
        if given is not None:
            panel.picked[:width] = order[here]
        if width == block and start > 0:  # the first one has warmed up
            full = full or _repeatable(panel)
            full()
        else:
            panel.eliminate(width)
        order[here], sizes[here] = panel.picked[:width], panel.sizes[:width]
        rows[here] = panel.V[:, :width].T
    independent = sizes > smallest
    # largest first: behind the first dependent column there is nothing but rounding
    return _gathered(order, rows, independent.cummin(0).values if panel.largest else independent)


class _Panel:
    """Pick and eliminate a block of columns, then update all that is left at once.

    ``S`` (n x n) is what is left of ``G`` at the start of the block, ``V`` (n x block) the new rows
    of the factor, transposed. They are stored side by side, so that one row fetched from memory
    holds both a column's inner products and its weights. ``F`` and ``Q`` are the same for the
    weighted objective. Only tensors of fixed shape and place are touched, so a GPU can record a
    block once and replay it.
    """

    def __init__(
        self, G: Tensor, smallest: float, F: Tensor | None, picking: bool, block: int
    ) -> None:
        self.n, self.block, self.smallest, self.picking = len(G), block, smallest, picking
        self.largest = picking and F is None
        self.residual = G.diagonal().clone()  # what is left of each column; -inf once it is taken
        self.picked = torch.zeros(block, dtype=torch.int64, device=G.device)
        self.sizes = G.new_zeros(block)  # what was left of each picked column
        self.beside = self._side_by_side(G)
        self.S, self.V = self.beside[:, : self.n], self.beside[:, self.n :]
        self.weighted = F is not None
        if F is not None:
            self.gain = F.diagonal().clone()
            self.beside_F = self._side_by_side(F)
            self.F, self.Q = self.beside_F[:, : self.n], self.beside_F[:, self.n :]

    def _side_by_side(self, square: Tensor) -> Tensor:
        buffer = square.new_empty(self.n, self.n + self.block)
        buffer[:, : self.n] = square
        return buffer

    def eliminate(self, width: int | None = None) -> None:
        """``width`` columns, or a whole block."""
        width = self.block if width is None else width
        for step in range(width):
            j, size = self.picked[step : step + 1], self.sizes[step : step + 1]
            self._pick(j, size)
            # 0 where j is dependent; if the largest is, so are all others, and nobody reads on
            scale = size.rsqrt() if self.largest else threshold(size, self.smallest, inf).rsqrt_()
            v, in_V = self._row(self.beside, j, step)
            v = torch.mul(v.addmv_(self.V[:, :step], in_V, alpha=-1), scale, out=self.V[:, step])
            self.residual.addcmul_(v, v, value=-1).scatter_(0, j, -inf)
            if self.weighted:
                q, in_Q = self._row(self.beside_F, j, step)
                q.addmv_(self.V[:, :step], in_Q, alpha=-1)
                q.addmv_(self.Q[:, :step], in_V, alpha=-1)
                q = torch.mul(q, scale, out=self.Q[:, step])
                q.addcmul_(v, self.gain.index_select(0, j) * scale * scale, value=-0.5)
                self.gain.addcmul_(v, q, value=-2)
        V = self.V[:, :width]
        self.S.addmm_(V, V.T, alpha=-1)
        if self.weighted:
            Q = self.Q[:, :width]
            self.F.addmm_(V, Q.T, alpha=-1).addmm_(Q, V.T, alpha=-1)

    def _row(self, beside: Tensor, j: Tensor, step: int) -> tuple[Tensor, Tensor]:
        row = beside.index_select(0, j)[0]
        return row[: self.n], row[self.n : self.n + step]

    def _pick(self, j: Tensor, size: Tensor) -> None:
        """Write the next column's index into ``j`` and what is left of it into ``size``."""
        if self.largest:
            torch.max(self.residual, dim=0, keepdim=True, out=(size, j))
            return
        if self.picking:
            # whatever is still independent comes before what is not
            score = self.gain.clamp(min=0) / self.residual
            behind = self.residual - self.smallest - 1
            ranked = torch.where(self.residual > self.smallest, score, behind)
            torch.max(ranked, dim=0, keepdim=True, out=(size, j))
        torch.index_select(self.residual, 0, j, out=size)


def _repeatable(panel: _Panel) -> Callable[[], None]:
    """On a GPU, one recorded launch of the whole panel instead of a thousand small ones."""
    device = panel.beside.device
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


def _gathered(order: Tensor, rows: Tensor, independent: Tensor) -> Pivots:
    """Leave out the rows of dependent columns and move those columns to the end."""
    taken = order[independent]
    dependent = torch.ones_like(order, dtype=torch.bool).index_fill_(0, taken, False)
    order = torch.cat([taken, dependent.nonzero()[:, 0]])
    # below the diagonal there is rounding from columns that were already taken
    return Pivots(order, rows[independent].index_select(1, order).triu_())
