"""Solves with an upper-triangular matrix."""

from __future__ import annotations

import torch
from torch import Tensor


def solve_upper(R11: Tensor, R12: Tensor) -> Tensor:
    """``R11^-1 @ R12`` for an upper-triangular ``R11``."""
    return torch.linalg.solve_triangular(R11, R12, upper=True)


def solve_truncated(R11: Tensor, R12: Tensor, floor: float) -> Tensor:
    """The smallest least-squares solution, for an ``R11`` that is singular to working precision."""
    U, sizes, Vh = torch.linalg.svd(R11)
    inverse = torch.where(sizes > floor * sizes[0], 1 / sizes, 0.0)
    return Vh.T @ (inverse[:, None] * (U.T @ R12))
