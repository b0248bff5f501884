"""From an :class:`RFactor` to an :class:`Ordering`: by pivoting, by weights, or as given."""

from __future__ import annotations

import math

import scipy.linalg
import torch
from torch import Tensor

from interpress.errors import ArgumentError
from interpress.linalg.cholesky import (
    Pivots,
    cholesky_in_order,
    pivoted_cholesky,
    weighted_cholesky,
)
from interpress.linalg.factor import RFactor, gram, triangle
from interpress.linalg.ordering import Ordering, as_square, solve_upper
from interpress.linalg.precision import gram_floor

# Cholesky of a Gram matrix is right to eps * condition**2. Up to this condition number (of columns
# scaled to length one) it is trusted; beyond it, columns are deflated and get a new Gram matrix.
_TRUSTED_CONDITION = 1e3
_PROBES = 8
_WIDE = 8  # columns per row from which n x n is too large a detour


def order_by_pivoting(factor: RFactor) -> Ordering:
    """Column pivoting (Businger and Golub): next comes the column least explained so far.

    From a Gram matrix this is one pivoted Cholesky. From a root it is a pivoted Cholesky QR in
    stages (after Fukaya, Nakatsukasa and Yamamoto, 2023), which has the precision of Householder
    QR at nearly the speed of a matrix product.
    """
    return _greedy(factor, None)


def order_by_weights(factor: RFactor, H: Tensor) -> Ordering:
    """Next comes the column that lowers ``||(Z - Z[:, kept] @ T) @ U||`` most, ``H = U @ U.T``.

    ``U`` (n x outputs) holds the weights of everything that reads the channels, all kernel taps
    and consumers side by side. Only Gram matrices are needed.
    """
    H = as_square(H, factor.n, "H").to(factor.device, torch.float64)
    size = H.diagonal().max()
    if not bool(size > 0):
        raise ArgumentError("H is zero: nothing reads these channels; order by pivoting instead")
    return _greedy(factor, H / size)


def order_as_given(factor: RFactor, order: Tensor) -> Ordering:
    """Someone else's order (a magnitude, a random one) with our ``T`` and errors."""
    order = torch.as_tensor(order, dtype=torch.int64, device=factor.device)
    everything = torch.arange(factor.n, device=factor.device)
    if order.shape != (factor.n,) or not torch.equal(order.sort().values, everything):
        raise ArgumentError(f"order is not a permutation of {factor.n} columns; list each one once")
    pivots = cholesky_in_order(factor.G, order, _smallest(factor.G))
    if factor.root is None and _holds(pivots, factor.G):
        return _ordering(factor, pivots, pivots.R, order)
    root = factor.R if factor.root is None else factor.root
    return _ordering(factor, pivots, triangle(root[:, pivots.order]), order)


def _greedy(factor: RFactor, H: Tensor | None) -> Ordering:
    root = factor.root
    if root is None:
        pivots = _pick(factor.G, _smallest(factor.G), H)
        if _holds(pivots, factor.G):
            return _ordering(factor, pivots, pivots.R, pivots.order)
        root = factor.R
    very_wide = H is None and root.shape[1] > _WIDE * root.shape[0]
    pivots = _householder(root, factor.floor) if very_wide else _staged(root, factor.floor, H)
    return _ordering(factor, pivots, pivots.R, pivots.order)


def _householder(root: Tensor, floor: float) -> Pivots:
    """LAPACK's pivoted QR, on the host: for few rows and more columns than a Gram matrix allows."""
    R, order = scipy.linalg.qr(root.cpu().numpy(), mode="r", pivoting=True, check_finite=False)
    diagonal = abs(R.diagonal())
    count = int((diagonal > floor * diagonal[0]).sum())
    return Pivots(
        *(torch.from_numpy(x).to(root.device) for x in (order.astype("int64"), R[:count]))
    )


def _holds(pivots: Pivots, G: Tensor) -> bool:
    """Whether ``R.T @ R`` still has the diagonal of ``G``.

    On a matrix made for it (Kahan's) rounding grows like ``||T||**2`` during elimination; then the
    factor's own triangle, which is safe on any matrix, is where to start from.
    """
    lost = (pivots.R.square().sum(dim=0) - G.diagonal()[pivots.order]).abs().max()
    return bool(lost <= 1e-9 * G.diagonal().max())


def _ordering(factor: RFactor, pivots: Pivots, R: Tensor, order: Tensor) -> Ordering:
    independent = torch.zeros(factor.n, dtype=torch.bool, device=order.device)
    independent[pivots.order[: pivots.count]] = True
    return Ordering(order, independent[order], pivots.order, R, factor.floor)


def _pick(G: Tensor, smallest: float, H: Tensor | None) -> Pivots:
    return pivoted_cholesky(G, smallest) if H is None else weighted_cholesky(G, H, smallest)


def _smallest(G: Tensor) -> float:
    """Squared column norms at or below this are rounding in a Gram matrix."""
    return float(G.diagonal().max()) * gram_floor(len(G)) ** 2


def _staged(
    root: Tensor, floor: float, H: Tensor | None = None, largest: float | None = None
) -> Pivots:
    """Pivoted QR by pivoted Cholesky factorizations of what is left of each column.

    Columns whose norm falls to ``floor`` times that of the ``largest`` count as dependent.
    """
    G = gram(root)
    n = len(G)
    top = math.sqrt(float(G.diagonal().max())) if n else 0.0
    largest = top if largest is None else largest
    if top <= floor * largest:
        return Pivots(torch.arange(n, device=G.device), G[:0])
    stage = _pick(G, max(_smallest(G), (floor * largest) ** 2), H)
    count = _trusted(stage.R)
    if count == n:
        return stage
    taken, others = stage.order[:count], stage.order[count:]
    # transposed, so that one column is one contiguous row
    left, R12 = _deflate(root.T[stage.order], stage.R[:count])
    H = None if H is None else H[others][:, others]
    rest = _staged(left.T, floor, H, largest)
    R = G.new_zeros(count + rest.count, n)
    R[:count, :count] = stage.R[:count, :count]
    R[:count, count:] = R12.index_select(1, rest.order)
    R[count:, count:] = rest.R
    return Pivots(torch.cat([taken, others[rest.order]]), R)


def _trusted(R: Tensor) -> int:
    """How many leading columns are well enough conditioned for a Gram matrix; at least one.

    ``R[:c, :c].T z = g`` gives ``||z[:c]|| ~ ||inverse(R[:c, :c])||_F`` for a random ``g``, at
    every c at once; scaling ``g`` by the column lengths scales the columns to length one.
    """
    R11 = R[:, : len(R)]
    generator = torch.Generator().manual_seed(0)
    probes = torch.randn(len(R), _PROBES, generator=generator, dtype=R.dtype).to(R.device)
    lengths = torch.linalg.vector_norm(R11, dim=0)[:, None]
    z = torch.linalg.solve_triangular(R11.T, probes * lengths, upper=False)
    condition = z.square().mean(dim=1).cumsum(0).sqrt()
    return max(1, int((condition <= _TRUSTED_CONDITION).sum()))


def _deflate(columns: Tensor, R: Tensor) -> tuple[Tensor, Tensor]:
    """What the basis (the first rows of ``columns``) leaves of the others, and the refined R12.

    The projection is applied twice: once is right to eps * condition, twice to eps.
    """
    basis, others = columns[: len(R)], columns[len(R) :]
    R11, R12 = R[:, : len(R)], R[:, len(R) :]
    left = torch.addmm(others, solve_upper(R11, R12).T, basis, alpha=-1)
    # R11' missed = basis' left: what the first projection did not remove
    missed = torch.linalg.solve_triangular(R11.T, basis @ left.T, upper=False)
    return left.addmm_(solve_upper(R11, missed).T, basis, alpha=-1), missed.add_(R12)
