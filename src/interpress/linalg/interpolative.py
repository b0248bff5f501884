"""Interpolative decomposition of a matrix, for people who want just that.

An interpolative decomposition (ID) writes every column of a matrix as a combination of a few of
its own columns::

    A ~= A[:, kept] @ T          A (m x n),  kept: k of n column indices,  T (k x n)

``kept`` are the *skeleton columns*, ``T`` is the *interpolation matrix*; it holds the identity at
the kept columns. Unlike a truncated SVD the basis is made of real columns, which keep their
meaning (sparsity, sign, a neuron).

It comes from QR with column pivoting, ``A[:, order] = Q [R11 R12; 0 R22]``: the first k pivots are
kept, ``T = [I, R11^-1 R12]`` up to the permutation, and the error is exactly ``||R22||``. It can be
no smaller than singular value ``sigma_{k+1}`` of ``A``, and is usually within a small factor.

How this differs from :mod:`scipy.linalg.interpolative`:

- ``k=`` and ``eps=`` are two arguments, and one type comes back whichever is used;
- ``eps`` is certified: ``||A - A[:, kept] @ T||_2 <= eps * ||A||_2`` holds, not just a proxy of it;
- it is deterministic, nested in k, and the error is part of the result;
- a rank-deficient ``A`` (duplicate or zero columns, k above the rank) gives a ``T`` of moderate
  size, and ``max_entry=`` bounds it outright;
- any float dtype, NumPy or torch, CPU or GPU; large float32 matrices are read in pieces.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from interpress.checks import is_whole
from interpress.errors import ArgumentError
from interpress.linalg.factor import RFactor
from interpress.linalg.interpolation import Interpolation
from interpress.linalg.ordering import ColumnOrdering
from interpress.linalg.pivoting import order_by_pivoting
from interpress.linalg.precision import has_float64
from interpress.linalg.stream import FactorStream

_COPY = 2**24  # larger float32 matrices are streamed rather than copied to float64


def interpolative_decomposition(
    A: Tensor | np.ndarray[Any, Any],
    *,
    k: int | None = None,
    eps: float | None = None,
    max_entry: float | None = None,
) -> Interpolation:
    """Keep k columns of ``A``, or as few as reach the relative error ``eps``.

    Give exactly one of ``k`` (0 to n) and ``eps`` (the spectral error relative to ``||A||_2``,
    certified). ``max_entry`` (more than 1) bounds ``|T|`` by strong rank-revealing swaps.

    Returns an :class:`Interpolation` with ``kept``, ``T`` (in the dtype and on the device of
    ``A``, whose rounding ``eps`` covers), ``frobenius_error`` and ``spectral_error``.

    >>> A = torch.randn(1000, 20) @ torch.randn(20, 64)
    >>> found = interpolative_decomposition(A, eps=1e-3)
    >>> found.k
    20
    >>> (A - A[:, found.kept] @ found.T).norm() < 1e-3 * A.norm()
    tensor(True)
    """
    A = _as_matrix(A)
    if (k is None) == (eps is None):
        given = "neither" if k is None else f"both k={k} and eps={eps}"
        raise ArgumentError(f"give exactly one of k= and eps=; got {given}")
    if k is not None and not (is_whole(k) and 0 <= k <= A.shape[1]):
        raise ArgumentError(f"k={k!r} of {A.shape[1]} columns; ask for a k from 0 to {A.shape[1]}")
    ordering = column_ordering(A)
    found = (
        ordering.for_accuracy(eps, max_entry=max_entry, dtype=A.dtype)
        if eps is not None
        else ordering.at_rank(k, max_entry=max_entry)  # type: ignore[arg-type]
    )
    T, residual = found.T.to(A).contiguous(), found.residual
    if A.element_size() < 4:  # rounding T to half precision is an error of its own
        R = torch.empty_like(ordering.R)
        R[:, ordering.columns] = ordering.R
        residual = R - R[:, found.kept] @ T.to(R)
    return Interpolation(found.kept.to(A.device), T, residual)


def column_ordering(A: Tensor | np.ndarray[Any, Any]) -> ColumnOrdering:
    """The pivoted factorization behind it: every k, every error, from one pass over ``A``."""
    A = _as_matrix(A)
    rows, n = A.shape
    if A.dtype != torch.float64 and rows > n and A.numel() > _COPY:
        return order_by_pivoting(FactorStream(n).add(A).factor())
    root = A.double() if has_float64(A.device) else A.cpu().double()
    return order_by_pivoting(RFactor.from_root(root, rows))


def _as_matrix(A: Tensor | np.ndarray[Any, Any]) -> Tensor:
    if isinstance(A, np.ma.MaskedArray):
        raise ArgumentError("A is a masked array; fill or drop the masked entries first")
    if isinstance(A, np.ndarray):
        if A.dtype.kind not in "fiub":
            raise ArgumentError(f"A has dtype {A.dtype}; convert it to a real float dtype first")
        native = A.dtype.newbyteorder("=") if A.dtype.itemsize <= 8 else np.dtype(np.float64)
        with np.errstate(over="ignore"):  # what overflows is reported as Inf below
            A = torch.from_numpy(np.array(A, dtype=native, order="C"))
    if not isinstance(A, Tensor):
        raise ArgumentError(f"A is a {type(A).__name__}; pass a torch.Tensor or a NumPy array")
    if A.ndim != 2:
        raise ArgumentError(f"A has shape {tuple(A.shape)}; pass a matrix (rows, columns)")
    if A.layout != torch.strided or A.is_meta:
        raise ArgumentError(f"A is a {A.layout} tensor on {A.device}; pass a dense one with data")
    if not A.is_floating_point():
        raise ArgumentError(f"A has dtype {A.dtype}; convert it to a real float dtype first")
    if A.element_size() == 1:
        A = A.to(torch.float32)  # float8 has no arithmetic of its own
    if A.numel() == 0:
        raise ArgumentError(f"A is empty, shape {tuple(A.shape)}; pass at least one row and column")
    return A.detach()
