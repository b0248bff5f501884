"""Solvers for an upper-triangular matrix."""

from __future__ import annotations

import torch
from torch import Tensor


def solve_upper(R11: Tensor, R12: Tensor) -> Tensor:
    """Return `R11^-1 @ R12` for an upper-triangular `R11`."""
    return torch.linalg.solve_triangular(R11, R12, upper=True)


def solve_truncated(R11: Tensor, R12: Tensor, floor: float) -> Tensor:
    """Return the minimum-norm least-squares solution of `R11 @ X = R12`.

    Singular values of `R11` at or below `floor` times the largest one count as zero.
    """
    left, values, right = torch.linalg.svd(R11)  # R11 == left @ diag(values) @ right
    inverse = torch.where(values > floor * values[0], 1 / values, 0.0)
    return right.T @ (inverse[:, None] * (left.T @ R12))
