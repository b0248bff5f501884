"""Spectral norms, computed from the Gram matrix of the shorter side."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def _normalized_gram(matrix: Tensor) -> tuple[Tensor, float]:
    """Return the Gram matrix of the shorter side, scaled to trace 1, and the Frobenius norm."""
    frobenius_norm = float(torch.linalg.matrix_norm(matrix)) if matrix.numel() else 0.0
    if frobenius_norm == 0.0:
        return matrix.new_zeros(0, 0), 0.0
    scaled = matrix / frobenius_norm
    is_wide = scaled.shape[0] <= scaled.shape[1]
    return (scaled @ scaled.T if is_wide else scaled.T @ scaled), frobenius_norm


def spectral_norm(matrix: Tensor) -> float:
    """Return `||matrix||_2`.

    The Gram matrix is precise enough: its largest eigenvalue has full relative precision.
    """
    gram, frobenius_norm = _normalized_gram(matrix)
    if frobenius_norm == 0.0:
        return 0.0
    return frobenius_norm * math.sqrt(max(float(torch.linalg.eigvalsh(gram)[-1]), 0.0))


def spectral_norm_at_most(matrix: Tensor, bound: float) -> bool:
    """Return whether `||matrix||_2 <= bound`, by one Cholesky instead of an eigenvalue problem.

    `bound**2 * I - M @ M.T` has a Cholesky factor exactly if no singular value exceeds the bound.
    """
    gram, frobenius_norm = _normalized_gram(matrix)
    if frobenius_norm <= bound:
        return True
    if bound <= 0:
        return False
    shifted = -gram
    shifted.diagonal().add_((bound / frobenius_norm) ** 2)
    return int(torch.linalg.cholesky_ex(shifted).info) == 0
