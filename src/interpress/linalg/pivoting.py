"""From an `RFactor` to a `ColumnOrdering`: by pivoting, by weights, or in a given order."""

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
from interpress.linalg.condition import well_conditioned_count
from interpress.linalg.factor import RFactor, gram, triangle
from interpress.linalg.ordering import ColumnOrdering, suffix_sums
from interpress.linalg.precision import as_square, gram_floor, largest_magnitude
from interpress.linalg.threads import single_threaded_scipy
from interpress.linalg.triangular import solve_upper

# Largest condition number (of columns scaled to length one) up to which a Gram matrix is used. Its
# Cholesky factorisation has a relative error of eps * condition**2. The columns beyond it are
# deflated and get a new Gram matrix.
_TRUSTED_CONDITION = 1e3
_WIDE = 8  # columns per row above which a Gram matrix (n x n) is too large; QR is used instead
# Factor on the floor for orders that do not pick the longest column: only a column with a larger
# residual is safe to use as a basis column.
_SAFETY = 30.0
# Stages that pick by weights. The columns that remain after them are nearly dependent and are
# picked by their norm.
_WEIGHTED_STAGES = 64


def order_by_pivoting(factor: RFactor) -> ColumnOrdering:
    """Return the order of column pivoting: next comes the column with the largest residual.

    A Gram matrix takes one pivoted Cholesky factorisation (Businger and Golub's order). A root
    takes a pivoted Cholesky QR in stages (after Fukaya, Nakatsukasa and Yamamoto, 2023), which has
    the precision of Householder QR at nearly the speed of a matrix product.
    """
    if factor.root is None:
        pivots = pivoted_cholesky(factor.G, _smallest_square(factor))
        if _is_accurate(pivots, factor.G):
            return _ordering(factor, pivots, pivots.R, unseen=_unseen_bound(factor, pivots))
    root = factor.R if factor.root is None else factor.root
    if root.shape[1] > _WIDE * root.shape[0]:
        return _order_by_householder(factor, root)
    return _order_in_stages(factor, root)


def order_by_weights(factor: RFactor, H: Tensor) -> ColumnOrdering:
    """Return the order that greedily minimises `||(Z - Z[:, kept] @ T) @ U||_F`, `H = U @ U.T`.

    `U` (n x outputs) holds the weights of all consumers and kernel positions side by side. Only
    `H` and the inner products of `Z` are needed.
    """
    H = as_square(H, factor.n, "H").to(factor.device, torch.float64)
    if not bool(H.any()):
        raise ArgumentError("H is zero: no weight reads these channels; order by pivoting instead")
    size = float(H.diagonal().max())
    asymmetric = float((H - H.T).abs().max()) > 1e-6 * size
    if size <= 0 or asymmetric or bool((H.diagonal() < 0).any()):
        raise ArgumentError(
            "H is not symmetric positive semidefinite; pass U @ U.T, U the (n, outputs) weights"
        )
    root, unseen = _root(factor)
    return _order_in_stages(factor, root, H / size, unseen)


def order_as_given(factor: RFactor, order: Tensor) -> ColumnOrdering:
    """Return the given order (by magnitude, for example) with its factor, `T` and errors.

    A column counts as dependent on earlier ones if a Gram matrix can hardly distinguish them
    (a relative residual of about 3e-6).
    """
    order = torch.as_tensor(order).to(factor.device)
    all_columns = torch.arange(factor.n, device=factor.device)
    if order.shape != (factor.n,) or not torch.equal(order.sort().values, all_columns):
        raise ArgumentError(
            f"order is not a permutation of {factor.n} columns; list each column once"
        )
    if factor.root is not None and len(factor.root) >= factor.n:
        R = triangle(factor.root[:, order])
        if bool((R.diagonal() > factor.floor * _longest_column(factor.G)).all()):
            return _ordering(factor, Pivots(order.clone(), R), R)  # all columns are independent
    pivots = cholesky_in_order(factor.G, order, _SAFETY**2 * _smallest_square(factor))
    root, unseen = _root(factor)
    R = triangle(root[:, pivots.order])
    above_floor = R.diagonal()[: pivots.count] > factor.floor * _longest_column(factor.G)
    count = int(above_floor.long().cumprod(0).sum())
    pivots = Pivots(pivots.order, R[:count])
    return _ordering(factor, pivots, R, order=order.clone(), unseen=unseen)


def are_independent(factor: RFactor, columns: Tensor) -> Tensor:
    """Return which of the `columns` form a basis of them all, as far as a Gram matrix resolves."""
    G = factor.G[columns][:, columns]
    pivots = pivoted_cholesky(G, _SAFETY**2 * _smallest_square(factor))
    independent = torch.zeros(len(columns), dtype=torch.bool, device=columns.device)
    independent[pivots.order[: pivots.count]] = True
    return independent


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


def _longest_column(G: Tensor) -> float:
    """Return the largest column norm of `Z`."""
    return math.sqrt(max(float(G.diagonal().max()), 0.0))


def _smallest_square(factor: RFactor) -> float:
    """Return the squared column norm at or below which a Gram matrix holds only rounding errors."""
    floor = max(factor.floor, gram_floor(factor.n))
    return (floor * _longest_column(factor.G)) ** 2


def _is_accurate(pivots: Pivots, G: Tensor) -> bool:
    """Return whether `R.T @ R` still has the diagonal of `G`.

    On some matrices (Kahan's) the rounding errors of the elimination grow like `||T||**2`. The
    caller then starts from the triangular factor, which is accurate for every matrix.
    """
    deviation = (pivots.R.square().sum(dim=0) - G.diagonal()[pivots.order]).abs().max()
    return bool(deviation <= 1e-9 * G.diagonal().max())


def _unseen_bound(factor: RFactor, pivots: Pivots) -> float:
    """Return a bound on the joint norm of the residuals of all columns that were not eliminated.

    Each residual is at most `floor` times the longest column.
    """
    return math.sqrt(factor.n - pivots.count) * factor.floor * _longest_column(factor.G)


def _root(factor: RFactor) -> tuple[Tensor, float]:
    """Return a root of the Gram matrix and a bound on the norm of what it leaves out.

    The root is a pivoted Cholesky factor if that is accurate, and `factor.R` otherwise.
    """
    if factor.root is not None:
        return factor.root, 0.0
    pivots = pivoted_cholesky(factor.G, _smallest_square(factor))
    if not _is_accurate(pivots, factor.G):
        return factor.R, 0.0
    root = torch.empty_like(pivots.R)
    root[:, pivots.order] = pivots.R
    return root, _unseen_bound(factor, pivots)


def _order_by_householder(factor: RFactor, root: Tensor) -> ColumnOrdering:
    """Return the order of LAPACK's pivoted QR on the host, for far more columns than rows."""
    with single_threaded_scipy(root.shape[1]):
        R, order = scipy.linalg.qr(root.cpu().numpy(), mode="r", pivoting=True, check_finite=False)
    R, order = torch.from_numpy(R).to(root), torch.from_numpy(order).long().to(root.device)
    diagonal = R.diagonal().abs()
    count = int((diagonal > factor.floor * diagonal[0]).sum())
    return _ordering(factor, Pivots(order, R[:count]), R)


def _order_in_stages(
    factor: RFactor, root: Tensor, H: Tensor | None = None, unseen: float = 0.0
) -> ColumnOrdering:
    """Compute a pivoted QR by a greedy Cholesky factorisation of the residual in every stage.

    Columns whose residual falls to the floor, relative to the longest column, are dependent. Their
    residuals stay in `R`, so that the errors include them.
    """
    scale, residual, columns = 1.0, root, torch.arange(factor.n, device=root.device)
    floor = factor.floor
    if H is not None:  # picks need not be the longest columns, and fourth powers could overflow
        floor = min(_SAFETY * floor, 0.1)
        scale = 2.0 ** math.frexp(largest_magnitude(root))[1]
        residual = root / scale
    longest_at_start = None
    basis_by_stage: list[Tensor] = []  # columns that each stage moved to the basis
    blocks: list[tuple[Tensor, Tensor, Tensor]] = []  # per stage R11, R12 and the columns of R12
    while len(columns):
        G = gram(residual)
        longest = _longest_column(G)
        longest_at_start = longest if longest_at_start is None else longest_at_start
        if longest <= floor * longest_at_start:
            break
        smallest = max(gram_floor(len(G)) * longest, floor * longest_at_start) ** 2
        stage, count = _stage_pivots(G, H if len(blocks) < _WEIGHTED_STAGES else None, smallest)
        basis, outside = stage.order[:count], stage.order[count:]
        R11, R12 = stage.R[:count, :count], stage.R[:count, count:]
        if len(outside):  # transposed, so that each column is one contiguous row
            deflated, R12 = _deflate(residual.T[stage.order], stage.R[:count])
            residual = deflated.T
        basis_by_stage.append(columns[basis])
        columns = columns[outside]
        blocks.append((R11, R12, columns))
        H = None if H is None else H[outside][:, outside]
    R, columns = _assembled(basis_by_stage, blocks, residual, columns)
    R *= scale
    count = sum(len(R11) for R11, _, _ in blocks)
    return _ordering(factor, Pivots(columns, R[:count]), R, unseen=unseen)


def _stage_pivots(G: Tensor, H: Tensor | None, smallest: float) -> tuple[Pivots, int]:
    """Return the pivots of one stage and how many of them are accurate enough to use."""
    if H is None:
        stage = pivoted_cholesky(G, smallest)
        return stage, well_conditioned_count(stage.R, _TRUSTED_CONDITION)
    stage = weighted_cholesky(G, H, smallest)
    return stage, min(
        well_conditioned_count(stage.R, _TRUSTED_CONDITION), _informative_count(stage, H)
    )


def _assembled(
    basis_by_stage: list[Tensor],
    blocks: list[tuple[Tensor, Tensor, Tensor]],
    residual: Tensor,
    dependent: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return one trapezoidal factor from the rows of all stages and the residual; its columns."""
    columns = torch.cat([*basis_by_stage, dependent])
    tail = triangle(residual) if len(dependent) else residual[:0, :0]
    count = sum(len(R11) for R11, _, _ in blocks)
    R = residual.new_zeros(count + len(tail), len(columns))
    position = torch.empty_like(columns)
    position[columns] = torch.arange(len(columns), device=columns.device)
    start = 0
    for R11, R12, outside in blocks:
        stop = start + len(R11)
        R[start:stop, start:stop] = R11
        R[start:stop, position[outside]] = R12
        start = stop
    R[count:, count:] = tail
    return R, columns


def _informative_count(stage: Pivots, H: Tensor) -> int:
    """Return how many picks precede the rounding level of the scores; at least one.

    The scores are rounding errors once the squared weighted error has fallen by 1e-8.
    """
    H = H[stage.order][:, stage.order]
    squared_errors = suffix_sums(((stage.R @ H) * stage.R).sum(dim=1).clamp(min=0))
    return max(1, int((squared_errors[:-1] > 1e-8 * squared_errors[0]).sum()))


def _deflate(columns: Tensor, R: Tensor) -> tuple[Tensor, Tensor]:
    """Return the residual of the columns outside the basis, and the refined R12.

    The rows of `columns` are columns of the residual; the first `len(R)` of them are the basis. The
    projection is applied twice: once has an error of eps * condition, twice of eps.
    """
    basis, outside = columns[: len(R)], columns[len(R) :]
    R11, R12 = R[:, : len(R)], R[:, len(R) :]
    residual = torch.addmm(outside, solve_upper(R11, R12).T, basis, alpha=-1)
    # R11.T @ correction = basis.T @ residual: the part that the first projection left
    correction = torch.linalg.solve_triangular(R11.T, basis @ residual.T, upper=False)
    residual.addmm_(solve_upper(R11, correction).T, basis, alpha=-1)
    return residual, correction.add_(R12)
