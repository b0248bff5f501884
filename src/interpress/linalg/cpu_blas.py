"""Products and solves on the CPU by SciPy's BLAS.

It computes one triangle of a Gram matrix in half the work of a full product, which torch cannot,
and solves with many right-hand sides faster than torch. A decomposition uses only this BLAS,
because the waiting threads of two thread pools slow each other down.

A row-major matrix is the transpose of a column-major one, so each function computes the transposed
equation and copies no contiguous argument.
"""

from __future__ import annotations

from typing import Any

import torch
from scipy.linalg import blas
from torch import Tensor


def upper_gram(matrix: Tensor) -> Tensor:
    """Return the upper triangle of `matrix.T @ matrix`; the entries below it are arbitrary."""
    upper = matrix.new_empty(matrix.shape[1], matrix.shape[1])
    _routine("syrk", matrix)(1.0, matrix.numpy().T, c=upper.numpy().T, overwrite_c=1, lower=1)
    return upper


def solve_upper(R11: Tensor, R12: Tensor) -> Tensor:
    """Return `R11^-1 @ R12` for an upper-triangular `R11`."""
    if not R12.numel():  # SciPy accepts no empty arrays
        return R12
    # X.T @ R11.T = R12.T
    solution = _routine("trsm", R11)(1.0, R11.numpy().T, R12.numpy().T, side=1, lower=1)
    return torch.from_numpy(solution.T)


def subtract_product(C: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """Compute `C -= A @ B` in place; `C` is contiguous."""
    if A.numel() and B.numel():
        gemm = _routine("gemm", C)
        gemm(-1.0, B.numpy().T, A.numpy().T, beta=1.0, c=C.numpy().T, overwrite_c=1)
    return C


def _routine(name: str, matrix: Tensor) -> Any:
    return getattr(blas, ("d" if matrix.dtype == torch.float64 else "s") + name)
