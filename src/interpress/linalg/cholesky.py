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

from interpress.linalg.threads import quiet_scipy

_BLOCK = 32  # pivots between two updates of the whole matrix


@dataclass(frozen=True, eq=False)
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

        S <- S - u t'             u = S[:, j],  t = u / S[j, j]
        F <- F - t p' - p t'      p = F[:, j] - t * F[j, j] / 2
    """
    return _eliminate(G, smallest, F=G @ H @ G)


def cholesky_in_order(G: Tensor, order: Tensor, smallest: float) -> Pivots:
    """Take the columns as given, passing over those that depend on earlier ones."""
    return _eliminate(G, smallest, given=order)


def _lapack(G: Tensor, smallest: float) -> Pivots:
    # The lower factor in Fortran order is the upper one in C order: rows come out contiguous.
    with quiet_scipy(len(G)):
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
        rows[here] = panel.rows(width)
    independent = sizes > smallest
    # largest first: behind the first dependent column there is nothing but rounding
    return _gathered(order, rows, independent.cummin(0).values if panel.largest else independent)


class _Panel:
    """Pick and eliminate a block of columns, then update all that is left at once.

    ``S`` (n x n) is what is left of ``G`` at the start of the block. Picking column j fetches its
    row ``u`` of ``S``, takes off what the block has eliminated so far, and sets ``t = u / u[j]``.
    ``S`` and all ``t`` are stored side by side, so that one fetch brings both ``S[j]`` and the
    weights ``t[j]``; likewise ``F`` and ``p`` of the weighted objective. Only tensors of fixed
    shape and place are touched, so a GPU can record a block once and replay it, and every kernel
    saved per pivot counts.
    """

    def __init__(
        self, G: Tensor, smallest: float, F: Tensor | None, picking: bool, block: int
    ) -> None:
        self.n, self.block, self.smallest, self.picking = len(G), block, smallest, picking
        self.largest = picking and F is None
        self.residual = G.diagonal().clone()  # what is left of each column; -inf once it is taken
        self.picked = torch.zeros(block, dtype=torch.int64, device=G.device)
        self.sizes = G.new_zeros(block)  # what was left of each picked column
        self.S_t = self._side_by_side(G)
        self.u = G.new_zeros(block, self.n + block)
        self.weighted = F is not None
        if F is not None:
            self.gain = F.diagonal().clone()
            self.F_p = self._side_by_side(F)

    def _side_by_side(self, square: Tensor) -> Tensor:
        buffer = square.new_empty(self.n, self.n + self.block)
        buffer[:, : self.n] = square
        return buffer

    def rows(self, width: int) -> Tensor:
        """Rows of the triangular factor, columns in the original numbering."""
        return self.u[:width, : self.n] * self.sizes[:width, None].rsqrt()

    def eliminate(self, width: int | None = None) -> None:
        """``width`` columns, or a whole block."""
        n, width = self.n, self.block if width is None else width
        t, u = self.S_t[:, n:], self.u[:, :n]
        for step in range(width):
            j, size = self.picked[step : step + 1], self.sizes[step : step + 1]
            self._pick(j, size)
            # t = 0 for a dependent column; if even the largest is one, nobody reads on
            divisor = size if self.largest else threshold(size, self.smallest, inf)
            torch.index_select(self.S_t, 0, j, out=self.u[step : step + 1])
            weights = self.u[step, n : n + step]
            u[step].addmv_(u[:step].T, weights, alpha=-1)
            torch.div(u[step], divisor, out=t[:, step])
            self.residual.addcmul_(u[step], t[:, step], value=-1).scatter_(0, j, -inf)
            if self.weighted:
                self._reweigh(step, j, divisor, weights)
        self.S_t[:, :n].addmm_(t[:, :width], u[:width], alpha=-1)
        if self.weighted:
            p = self.F_p[:, n : n + width]
            F = self.F_p[:, :n]
            F.addmm_(t[:, :width], p.T, alpha=-1).addmm_(p, t[:, :width].T, alpha=-1)

    def _reweigh(self, step: int, j: Tensor, divisor: Tensor, weights: Tensor) -> None:
        n = self.n
        t, p = self.S_t[:, n:], self.F_p[:, n:]
        row = self.F_p.index_select(0, j)[0]
        g = row[:n].addmv_(t[:, :step], row[n : n + step], alpha=-1)
        g.addmv_(p[:, :step], weights, alpha=-1)
        lost = self.gain.index_select(0, j) / divisor
        torch.addcmul(g, self.u[step, :n], lost, value=-0.5, out=p[:, step])
        self.gain.addcmul_(t[:, step], p[:, step], value=-2)

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
    device = panel.u.device
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return panel.eliminate
    program = torch.cuda.CUDAGraph()
    recording = torch.cuda.Stream(device)
    recording.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.device(device), torch.cuda.stream(recording):
        program.capture_begin(capture_error_mode="thread_local")
        try:
            panel.eliminate()
        finally:
            program.capture_end()
    torch.cuda.current_stream(device).wait_stream(recording)
    return program.replay


def _gathered(order: Tensor, rows: Tensor, independent: Tensor) -> Pivots:
    """Leave out the rows of dependent columns and move those columns to the end."""
    taken = order[independent]
    dependent = torch.ones_like(order, dtype=torch.bool).index_fill_(0, taken, False)
    order = torch.cat([taken, dependent.nonzero()[:, 0]])
    # below the diagonal there is rounding from columns that were already taken
    return Pivots(order, rows[independent].index_select(1, order).triu_())
