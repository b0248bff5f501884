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
from interpress.linalg.ordering import ColumnOrdering, suffix_sums
from interpress.linalg.precision import as_square, gram_floor, largest_magnitude
from interpress.linalg.threads import quiet_scipy
from interpress.linalg.triangular import solve_upper

# Cholesky of a Gram matrix is right to eps * condition**2. Up to this condition number (of columns
# scaled to length one) it is trusted; beyond it, columns are deflated and get a new Gram matrix.
_TRUSTED_CONDITION = 1e3
_PROBES = 8
_WIDE = 8  # columns per row from which n x n is too large a detour
_CLEAR = 30.0  # times the floor: what must be left of a column that is not the longest
_WEIGHTED_STAGES = 64  # then what is left is nearly dependent, and ordered by its size alone


def order_by_pivoting(factor: RFactor) -> ColumnOrdering:
    """Column pivoting (Businger and Golub): next comes the column least explained so far.

    From a Gram matrix this is one pivoted Cholesky. From a root it is a pivoted Cholesky QR in
    stages (after Fukaya, Nakatsukasa and Yamamoto, 2023), which has the precision of Householder
    QR at nearly the speed of a matrix product.
    """
    if factor.root is None:
        pivots = pivoted_cholesky(factor.G, _smallest(factor))
        if _holds(pivots, factor.G):
            return _ordering(factor, pivots, pivots.R, unseen=_unseen(factor, pivots))
    root = factor.R if factor.root is None else factor.root
    if root.shape[1] > _WIDE * root.shape[0]:
        return _householder(factor, root)
    return _staged(factor, root)


def order_by_weights(factor: RFactor, H: Tensor) -> ColumnOrdering:
    """Next comes the column that lowers ``||(Z - Z[:, kept] @ T) @ U||`` most, ``H = U @ U.T``.

    ``U`` (n x outputs) holds the weights of everything that reads the channels, all kernel taps
    and consumers side by side. Only Gram matrices are needed.
    """
    H = as_square(H, factor.n, "H").to(factor.device, torch.float64)
    if not bool(H.any()):
        raise ArgumentError("H is zero: nothing reads these channels; order by pivoting instead")
    size = float(H.diagonal().max())
    lopsided = float((H - H.T).abs().max()) > 1e-6 * size
    if size <= 0 or lopsided or bool((H.diagonal() < 0).any()):
        raise ArgumentError("H is not U @ U.T for any U; multiply the weights by their transpose")
    root, unseen = _root(factor)
    return _staged(factor, root, H / size, unseen)


def order_as_given(factor: RFactor, order: Tensor) -> ColumnOrdering:
    """Someone else's order (a magnitude, a random one) with our ``T`` and errors.

    A column counts as dependent on earlier ones when a Gram matrix can hardly tell them apart
    (about 3e-6).
    """
    order = torch.as_tensor(order).to(factor.device)
    everything = torch.arange(factor.n, device=factor.device)
    if order.shape != (factor.n,) or not torch.equal(order.sort().values, everything):
        raise ArgumentError(f"order is not a permutation of {factor.n} columns; list each one once")
    if factor.root is not None and len(factor.root) >= factor.n:
        R = triangle(factor.root[:, order])
        if bool((R.diagonal() > factor.floor * _longest(factor.G)).all()):  # all independent
            return _ordering(factor, Pivots(order.clone(), R), R)
    pivots = cholesky_in_order(factor.G, order, _CLEAR**2 * _smallest(factor))
    root, unseen = _root(factor)
    R = triangle(root[:, pivots.order])
    sound = (R.diagonal()[: pivots.count] > factor.floor * _longest(factor.G)).long().cumprod(0)
    pivots = Pivots(pivots.order, R[: int(sound.sum())])
    return _ordering(factor, pivots, R, order=order.clone(), unseen=unseen)


def are_independent(factor: RFactor, columns: Tensor) -> Tensor:
    """Which of some columns are no combination of the others, as far as a Gram matrix can tell."""
    G = factor.G[columns][:, columns]
    pivots = pivoted_cholesky(G, _CLEAR**2 * _smallest(factor))
    found = torch.zeros(len(columns), dtype=torch.bool, device=columns.device)
    found[pivots.order[: pivots.count]] = True
    return found


def _ordering(
    factor: RFactor,
    pivots: Pivots,
    R: Tensor,
    *,
    order: Tensor | None = None,
    unseen: float = 0.0,
) -> ColumnOrdering:
    order = pivots.order if order is None else order
    independent = torch.zeros(factor.n, dtype=torch.bool, device=order.device)
    independent[pivots.order[: pivots.count]] = True
    return ColumnOrdering(order, independent[order], pivots.order, R, factor.floor, unseen)


def _longest(G: Tensor) -> float:
    return math.sqrt(max(float(G.diagonal().max()), 0.0))


def _smallest(factor: RFactor) -> float:
    """Squared column norms at or below this are rounding in a Gram matrix."""
    floor = max(factor.floor, gram_floor(factor.n))
    return (floor * _longest(factor.G)) ** 2


def _holds(pivots: Pivots, G: Tensor) -> bool:
    """Whether ``R.T @ R`` still has the diagonal of ``G``.

    On a matrix made for it (Kahan's) rounding grows like ``||T||**2`` during elimination; then the
    factor's own triangle, which is safe on any matrix, is where to start from.
    """
    lost = (pivots.R.square().sum(dim=0) - G.diagonal()[pivots.order]).abs().max()
    return bool(lost <= 1e-9 * G.diagonal().max())


def _unseen(factor: RFactor, pivots: Pivots) -> float:
    """Each column passed over is at most floor long, relative to the longest; all together."""
    return math.sqrt(factor.n - pivots.count) * factor.floor * _longest(factor.G)


def _root(factor: RFactor) -> tuple[Tensor, float]:
    """Any root of the Gram matrix, the cheap one where it is safe, and a bound on what it lacks."""
    if factor.root is not None:
        return factor.root, 0.0
    pivots = pivoted_cholesky(factor.G, _smallest(factor))
    if not _holds(pivots, factor.G):
        return factor.R, 0.0
    root = torch.empty_like(pivots.R)
    root[:, pivots.order] = pivots.R
    return root, _unseen(factor, pivots)


def _householder(factor: RFactor, root: Tensor) -> ColumnOrdering:
    """LAPACK's pivoted QR, on the host: for few rows and more columns than a Gram matrix allows."""
    with quiet_scipy(root.shape[1]):
        R, order = scipy.linalg.qr(root.cpu().numpy(), mode="r", pivoting=True, check_finite=False)
    R, order = torch.from_numpy(R).to(root), torch.from_numpy(order).long().to(root.device)
    diagonal = R.diagonal().abs()
    count = int((diagonal > factor.floor * diagonal[0]).sum())
    return _ordering(factor, Pivots(order, R[:count]), R)


def _staged(
    factor: RFactor, root: Tensor, H: Tensor | None = None, unseen: float = 0.0
) -> ColumnOrdering:
    """Pivoted QR by greedy Cholesky factorizations of what is left of each column.

    Columns whose norm falls to the floor, relative to the longest, count as dependent; what is
    left of them stays in ``R``, so that errors account for it.
    """
    scale, left, columns = 1.0, root, torch.arange(factor.n, device=root.device)
    floor = factor.floor
    if H is not None:  # picks need not be the longest, and fourth powers of the data appear
        floor = min(_CLEAR * floor, 0.1)
        scale = 2.0 ** math.frexp(largest_magnitude(root))[1]
        left = root / scale
    longest = None
    order: list[Tensor] = []  # columns taken by each stage
    blocks: list[tuple[Tensor, Tensor, Tensor]] = []  # its R11, R12, and the columns of R12
    while len(columns):
        G = gram(left)
        top = _longest(G)
        longest = top if longest is None else longest
        if top <= floor * longest:
            break
        smallest = max(gram_floor(len(G)) * top, floor * longest) ** 2
        weights = H if len(blocks) < _WEIGHTED_STAGES else None
        if weights is None:
            stage = pivoted_cholesky(G, smallest)
        else:
            stage = weighted_cholesky(G, weights, smallest)
        count = _trusted(stage.R)
        if weights is not None:
            count = min(count, _informative(stage, weights))
        taken, others = stage.order[:count], stage.order[count:]
        R11, R12 = stage.R[:count, :count], stage.R[:count, count:]
        if len(others):  # transposed, so that one column is one contiguous row
            remainder, R12 = _deflate(left.T[stage.order], stage.R[:count])
            left = remainder.T
        order.append(columns[taken])
        columns = columns[others]
        blocks.append((R11, R12, columns))
        H = None if H is None else H[others][:, others]
    R, columns = _assembled(order, blocks, left, columns)
    R *= scale
    count = sum(len(R11) for R11, _, _ in blocks)
    return _ordering(factor, Pivots(columns, R[:count]), R, unseen=unseen)


def _assembled(
    order: list[Tensor], blocks: list[tuple[Tensor, Tensor, Tensor]], left: Tensor, rest: Tensor
) -> tuple[Tensor, Tensor]:
    """One trapezoid from the rows of every stage and what was left at the end; its columns."""
    columns = torch.cat([*order, rest])
    tail = triangle(left) if len(rest) else left[:0, :0]
    count = sum(len(R11) for R11, _, _ in blocks)
    R = left.new_zeros(count + len(tail), len(columns))
    place = torch.empty_like(columns)
    place[columns] = torch.arange(len(columns), device=columns.device)
    start = 0
    for R11, R12, others in blocks:
        stop = start + len(R11)
        R[start:stop, start:stop] = R11
        R[start:stop, place[others]] = R12
        start = stop
    R[count:, count:] = tail
    return R, columns


def _informative(stage: Pivots, H: Tensor) -> int:
    """How many picks were made before the weighted error fell to the rounding of its scores."""
    H = H[stage.order][:, stage.order]
    left = suffix_sums(((stage.R @ H) * stage.R).sum(dim=1).clamp(min=0))
    return max(1, int((left[:-1] > 1e-8 * left[0]).sum()))


def _trusted(R: Tensor) -> int:
    """How many leading columns are well enough conditioned for a Gram matrix; at least one.

    ``R[:c, :c].T z = g`` gives ``||z[:c]|| ~ ||inverse(R[:c, :c])||_F`` for a random ``g``, at
    every c at once; scaling ``g`` by the column lengths scales the columns to length one.
    """
    R11 = R[:, : len(R)]
    generator = torch.Generator("cpu").manual_seed(0)
    shape = (len(R), _PROBES)
    probes = torch.randn(shape, generator=generator, dtype=R.dtype, device="cpu").to(R.device)
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
