"""How well the dropped columns of a tap are interpolated, and how well they could be."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from interpress.calibration.halves import Halves
from interpress.linalg.factor import RFactor
from interpress.spaces.taps import Tap
from interpress.surgery.interpolations import tap_ordering

TapError = tuple[float, float | None]
"""The relative spectral error of a tap, and the smallest possible one; None if it is not known."""
_WIDE = 2048  # columns from which the errors of a large network are estimated by iteration
_NEARLY_NONE = 1e-12  # ridge, relative to the mean diagonal, that only makes a solution unique
_ITERATIONS = 40  # of the power method; the norm is then known to a percent


def tap_error(
    tap: Tap, columns: Tensor, halves: Halves, regularize: bool, *, quick: bool = False
) -> TapError:
    """Return the relative spectral error with these columns kept, and the smallest possible one.

    With `quick`, wide taps get an estimate of the error, and no bound.
    """
    if quick and tap.size > _WIDE:
        return _estimated(halves.factor, columns), None
    ordering, interpolation = tap_ordering(tap, columns, halves.factor)
    norm = ordering.spectral_norm or 1.0
    bound = ordering.svd_bound(interpolation.k).spectral / norm
    error = interpolation.spectral_error / norm
    if regularize and not halves.many:
        error = max(error, halves.relative_error(columns.to(halves.second.device)))
    return error, bound


def _estimated(factor: RFactor, columns: Tensor) -> float:
    """Return `||Z - Z[:, kept] @ T||_2 / ||Z||_2` from Gram matrices, by the power method."""
    G = factor.G
    is_kept = torch.zeros(factor.n, dtype=torch.bool, device=G.device)
    is_kept[columns.to(G.device)] = True
    kept, dropped = torch.nonzero(is_kept).reshape(-1), torch.nonzero(~is_kept).reshape(-1)
    whole = _largest_eigenvalue(lambda vector: G @ vector, factor.n, G)
    if whole == 0:
        return 0.0
    system, added = G[kept][:, kept], _NEARLY_NONE * float(G.diagonal().mean())
    while True:  # some kept columns may depend on others
        system.diagonal().add_(added)
        lower, failed = torch.linalg.cholesky_ex(system)
        if not int(failed):
            break
        added *= 100
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
