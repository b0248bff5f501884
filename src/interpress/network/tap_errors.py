"""How well the dropped columns of a tap are interpolated, and how well they could be."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from interpress.calibration.halves import Halves
from interpress.linalg.factor import RFactor, safe_cholesky
from interpress.spaces.taps import Tap
from interpress.surgery.interpolations import tap_ordering

UNKNOWN = float("nan")
"""The bound of a tap that is too wide for a singular value decomposition."""
_WIDE = 2048  # columns from which the errors of a large network are estimated by iteration
_ITERATIONS = 40  # of the power method; the norm is then known to a percent


def tap_error(
    tap: Tap, columns: Tensor, halves: Halves, regularize: bool, *, quick: bool = False
) -> tuple[float, float]:
    """Return the relative spectral error with these columns kept, and the smallest possible one.

    With `quick`, wide taps get an estimate of the error, and no bound.
    """
    if quick and tap.size > _WIDE:
        error, bound = _estimated(halves.factor, columns), UNKNOWN
    else:
        ordering, interpolation = tap_ordering(tap, columns, halves.factor)
        norm = ordering.spectral_norm or 1.0
        bound = ordering.svd_bound(interpolation.k).spectral / norm
        error = interpolation.spectral_error / norm
    if regularize and not halves.many and not (quick and tap.size > _WIDE):
        error = max(error, halves.relative_error(columns.to(halves.second.device)))
    return error, bound


def _estimated(factor: RFactor, columns: Tensor) -> float:
    """Return `||Z - Z[:, kept] @ T||_2 / ||Z||_2` from Gram matrices, by the power method."""
    G = factor.G
    is_kept = torch.zeros(factor.n, dtype=torch.bool, device=G.device)
    is_kept[columns.to(G.device)] = True
    kept, dropped = torch.nonzero(is_kept).reshape(-1), torch.nonzero(~is_kept).reshape(-1)
    whole = _largest_eigenvalue(lambda vector: G @ vector, factor.n, G)
    lower = safe_cholesky(G[kept][:, kept])
    if lower is None or whole == 0:
        return UNKNOWN
    side = torch.linalg.solve_triangular(lower, G[kept][:, dropped], upper=False)
    corner = G[dropped][:, dropped]
    lost = _largest_eigenvalue(
        lambda vector: corner @ vector - side.T @ (side @ vector), len(dropped), G
    )
    return float((max(lost, 0.0) / whole) ** 0.5)


def _largest_eigenvalue(product: Callable[[Tensor], Tensor], size: int, like: Tensor) -> float:
    """Return the largest eigenvalue of a positive semidefinite matrix, given its products."""
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(size, generator=generator, dtype=torch.float64).to(like)
    value = 0.0
    for _ in range(_ITERATIONS):
        vector = product(vector / vector.norm().clamp(min=1e-300))
        value = float(vector.norm())
    return value
