"""Greedy Cholesky factorisation of a Gram matrix: pick a column, eliminate it, repeat.

For `G = Z.T @ Z`, the computed rows are the rows of the triangular factor of `Z` with its columns
in the picked order. Pivoted Cholesky of `G` therefore equals pivoted QR of `Z`. The functions
differ only in which column they pick next:

- :func:`pivoted_cholesky`: the column with the largest remaining norm (Businger and Golub);
- :func:`weighted_cholesky`: the column that lowers `||(Z - Z[:, kept] @ T) @ U||_F` most;
- :func:`cholesky_in_order`: the next column of an order that the caller passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.linalg import lapack
from torch import Tensor, inf
from torch.nn.functional import threshold

from interpress.linalg.padding import padding
from interpress.linalg.threads import single_threaded_scipy

# Pivots between two updates of the whole matrix. Larger blocks make fewer, larger matrix products
# but more work per pivot inside a block.
_BLOCK = 32


@dataclass(frozen=True, eq=False)
class Pivots:
    """The result of a factorisation that eliminated `count` columns."""

    order: Tensor  #: (n,) the eliminated columns in the picked order, then the dependent columns
    R: Tensor  #: (count, n) upper-trapezoidal factor, columns as in `order`

    @property
    def count(self) -> int:
        """Number of independent columns."""
        return self.R.shape[0]


def pivoted_cholesky(G: Tensor, smallest: float) -> Pivots:
    """Pick the largest remaining diagonal entry; stop when none exceeds `smallest`.

    On a CPU, only the upper triangle of `G` is read.
    """
    if G.device.type == "cpu":
        with single_threaded_scipy(len(G)):
            return _pivoted_by_lapack(G, smallest)
    return _eliminate(G, smallest)


def weighted_cholesky(G: Tensor, H: Tensor, smallest: float) -> Pivots:
    """Pick the column that lowers `trace(S @ H)` most, `S` the Schur complement of `G`.

    With `H = U @ U.T`, that trace is `||(Z - Z[:, kept] @ T) @ U||_F ** 2`, and picking column j
    lowers it by `(S H S)[j, j] / S[j, j]`. `S` and `F = S H S` change by a low-rank term per pick,
    so the whole ordering costs a few matrix products:

        S <- S - u t'             u = S[:, j],  t = u / S[j, j]
        F <- F - t p' - p t'      p = F[:, j] - t * F[j, j] / 2
    """
    return _eliminate(G, smallest, F=G @ H @ G)


def cholesky_in_order(G: Tensor, order: Tensor, smallest: float) -> Pivots:
    """Pick the columns in the given order; skip those that depend on earlier ones."""
    return _eliminate(G, smallest, fixed_order=order)


def pivoted_in_place(G: Tensor, n: int, smallest: float, most: int) -> Pivots:
    """Return the first `most` pivots of a matrix on the CPU whose rows and columns from n on are 0.

    Only the upper triangle of `G` is read. `R` takes the memory of `G`.
    """
    # The lower factor in Fortran order is the upper factor in C order, with contiguous rows.
    pstrf = lapack.dpstrf if G.dtype == torch.float64 else lapack.spstrf
    packed, pivots, count, _ = pstrf(G.numpy().T, tol=max(smallest, 0.0), lower=1, overwrite_a=True)
    # Columns of zeros are never picked, so they are still the last ones.
    order = torch.from_numpy(pivots[:n].astype("int64") - 1)
    return Pivots(order, torch.from_numpy(packed.T[: min(count, most), :n]).triu_())


def _pivoted_by_lapack(G: Tensor, smallest: float) -> Pivots:
    n = len(G)
    width = n + padding(n, G.element_size())
    padded = G.new_zeros(width, width)
    padded[:n, :n] = G
    return pivoted_in_place(padded, n, smallest, n)


def _eliminate(
    G: Tensor, smallest: float, F: Tensor | None = None, fixed_order: Tensor | None = None
) -> Pivots:
    """Factor `G` in plain torch, without a device synchronisation per pivot.

    Pick by the weighted objective if `F` is given, in `fixed_order` if that is given, and by the
    largest diagonal entry otherwise.
    """
    n = len(G)
    block = min(n, _BLOCK if n < 8192 else 2 * _BLOCK)
    panel = _Panel(G, smallest, F, fixed_order is None, block)
    if fixed_order is None:
        order = torch.empty(n, dtype=torch.int64, device=G.device)
    else:
        order = fixed_order.clone()
    sizes = G.new_empty(n)
    rows = torch.empty_like(G)
    eliminate_block = None
    for start in range(0, n, block):
        width = min(block, n - start)
        span = slice(start, start + width)
        if fixed_order is not None:
            panel.picked[:width] = order[span]
        if width == block and start > 0:  # the first block has warmed up the kernels
            eliminate_block = eliminate_block or _recorded_elimination(panel)
            eliminate_block()
        else:
            panel.eliminate(width)
        order[span], sizes[span] = panel.picked[:width], panel.sizes[:width]
        rows[span] = panel.rows(width)
    independent = sizes > smallest
    if panel.by_largest:  # everything after the first dependent column is rounding
        independent = independent.cummin(0).values
    return _drop_dependent(order, rows, independent)


class _Panel:
    """Pick and eliminate a block of columns, then update the whole matrix once.

    `S` (n x n) is the Schur complement of `G` at the start of the block. Picking column j reads its
    row `u` of `S`, subtracts the contribution of the columns eliminated in this block, and sets
    `t = u / u[j]`. `S` and all `t` are stored side by side, so that one read returns both `S[j]`
    and the weights `t[j]`; `F` and `p` of the weighted objective are stored in the same way.

    Tensors keep their shape and their memory, so that a GPU can record a block once and replay it.
    """

    def __init__(
        self, G: Tensor, smallest: float, F: Tensor | None, picks: bool, block: int
    ) -> None:
        self.n, self.block, self.smallest, self.picks = len(G), block, smallest, picks
        self.by_largest = picks and F is None
        self.residual = G.diagonal().clone()  # (n,) diagonal of S; -inf for a picked column
        self.picked = torch.zeros(block, dtype=torch.int64, device=G.device)
        self.sizes = G.new_zeros(block)  # the diagonal entry of S of each picked column
        self.S_t = self._side_by_side(G)  # (n, n + block)
        self.u = G.new_zeros(block, self.n + block)
        self.weighted = F is not None
        if F is not None:
            self.gain = F.diagonal().clone()  # (n,)
            self.F_p = self._side_by_side(F)  # (n, n + block)

    def _side_by_side(self, square: Tensor) -> Tensor:
        buffer = square.new_empty(self.n, self.n + self.block)
        buffer[:, : self.n] = square
        return buffer

    def rows(self, width: int) -> Tensor:
        """Return (width, n) rows of the triangular factor, columns in the original order."""
        return self.u[:width, : self.n] * self.sizes[:width, None].rsqrt()

    def eliminate(self, width: int | None = None) -> None:
        """Eliminate `width` columns; a whole block by default."""
        n, width = self.n, self.block if width is None else width
        t, u = self.S_t[:, n:], self.u[:, :n]
        for step in range(width):
            j, size = self.picked[step : step + 1], self.sizes[step : step + 1]
            self._pick(j, size)
            # A dependent column gets t = 0. With by_largest, all later columns are dependent too
            # and their rows are never used.
            divisor = size if self.by_largest else threshold(size, self.smallest, inf)
            torch.index_select(self.S_t, 0, j, out=self.u[step : step + 1])
            weights = self.u[step, n : n + step]
            u[step].addmv_(u[:step].T, weights, alpha=-1)
            torch.div(u[step], divisor, out=t[:, step])
            self.residual.addcmul_(u[step], t[:, step], value=-1).scatter_(0, j, -inf)
            if self.weighted:
                self._update_gain(step, j, divisor, weights)
        self.S_t[:, :n].addmm_(t[:, :width], u[:width], alpha=-1)
        if self.weighted:
            p = self.F_p[:, n : n + width]
            F = self.F_p[:, :n]
            F.addmm_(t[:, :width], p.T, alpha=-1).addmm_(p, t[:, :width].T, alpha=-1)

    def _update_gain(self, step: int, j: Tensor, divisor: Tensor, weights: Tensor) -> None:
        """Compute `p` of the picked column and subtract its term from the diagonal of `F`."""
        n = self.n
        t, p = self.S_t[:, n:], self.F_p[:, n:]
        row = self.F_p.index_select(0, j)[0]
        g = row[:n].addmv_(t[:, :step], row[n : n + step], alpha=-1)  # (n,) row j of F
        g.addmv_(p[:, :step], weights, alpha=-1)
        ratio = self.gain.index_select(0, j) / divisor  # F[j, j] / S[j, j]
        torch.addcmul(g, self.u[step, :n], ratio, value=-0.5, out=p[:, step])
        self.gain.addcmul_(t[:, step], p[:, step], value=-2)

    def _pick(self, j: Tensor, size: Tensor) -> None:
        """Write the index of the next column to `j` and its diagonal entry of `S` to `size`."""
        if self.by_largest:
            torch.max(self.residual, dim=0, keepdim=True, out=(size, j))
            return
        if self.picks:
            # dependent columns get a negative score, so that independent ones are picked first
            score = self.gain.clamp(min=0) / self.residual
            dependent_score = self.residual - self.smallest - 1
            scores = torch.where(self.residual > self.smallest, score, dependent_score)
            torch.max(scores, dim=0, keepdim=True, out=(size, j))
        torch.index_select(self.residual, 0, j, out=size)


def _recorded_elimination(panel: _Panel) -> Callable[[], None]:
    """Return a function that eliminates a whole block; on a GPU, the replay of a CUDA graph.

    A replay is one launch instead of about a thousand small ones.
    """
    device = panel.u.device
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return panel.eliminate
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.device(device), torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            panel.eliminate()
        finally:
            graph.capture_end()
    torch.cuda.current_stream(device).wait_stream(stream)
    return graph.replay


def _drop_dependent(order: Tensor, rows: Tensor, independent: Tensor) -> Pivots:
    """Remove the rows of dependent columns and move those columns to the end."""
    basis = order[independent]
    dependent = torch.ones_like(order, dtype=torch.bool).index_fill_(0, basis, False)
    order = torch.cat([basis, dependent.nonzero()[:, 0]])
    # Entries below the diagonal are rounding errors of columns that were picked earlier.
    return Pivots(order, rows[independent].index_select(1, order).triu_())
