"""Spectral norms, from the Gram matrix of the shorter side."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def _normalised_gram(matrix: Tensor) -> tuple[Tensor, float]:
    """Gram matrix of the shorter side with unit trace, and the Frobenius norm taken out."""
    size = float(torch.linalg.matrix_norm(matrix)) if matrix.numel() else 0.0
    if size == 0.0:
        return matrix.new_zeros(0, 0), 0.0
    scaled = matrix / size
    return (scaled @ scaled.T if scaled.shape[0] <= scaled.shape[1] else scaled.T @ scaled), size


def spectral_norm(matrix: Tensor) -> float:
    """``||matrix||_2``; the largest eigenvalue of a Gram matrix has full relative precision."""
    gram, size = _normalised_gram(matrix)
    if size == 0.0:
        return 0.0
    return size * math.sqrt(max(float(torch.linalg.eigvalsh(gram)[-1]), 0.0))


def spectral_norm_at_most(matrix: Tensor, bound: float) -> bool:
    """Whether ``||matrix||_2 <= bound``, by one Cholesky instead of an eigenvalue problem.

    ``bound**2 * I - M M'`` has a Cholesky factor exactly when no singular value exceeds the bound.
    """
    gram, size = _normalised_gram(matrix)
    if size <= bound:
        return True
    if bound <= 0:
        return False
    shifted = -gram
    shifted.diagonal().add_((bound / size) ** 2)
    return int(torch.linalg.cholesky_ex(shifted).info) == 0
