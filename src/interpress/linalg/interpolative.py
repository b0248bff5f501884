"""Interpolative decomposition of one matrix, independent of any network.

An interpolative decomposition (ID) writes every column of a matrix as a linear combination of a
few of its columns::

    A ~= A[:, kept] @ T          A (m x n),  kept: k of n column indices,  T (k x n)

`kept` are the *skeleton columns* and `T` is the *interpolation matrix*; it holds the identity at
the kept columns. Unlike the basis of a truncated SVD, this basis consists of columns of `A`, which
keep their meaning (sparsity, sign, a neuron).

The ID is computed by QR with column pivoting, `A[:, order] = Q [R11 R12; 0 R22]`. The first k
pivots are kept, `T = [I, R11^-1 R12]` up to the permutation, and the error is exactly `||R22||`.
The error is at least the singular value `sigma_{k+1}` of `A`, and usually within a small factor.

Differences from :mod:`scipy.linalg.interpolative`:

- `k=` and `eps=` are two arguments, and both return the same type;
- `eps` is certified: `||A - A[:, kept] @ T||_2 <= eps * ||A||_2` is checked, not only estimated;
- the result is deterministic, nested in k, and includes its error, computed on first access;
- a rank-deficient `A` (duplicate or zero columns, k above the rank) gives a `T` of moderate size,
  and `max_entry=` bounds its entries;
- any float dtype is accepted, from NumPy or torch, on a CPU or a GPU; large float32 matrices are
  read in pieces.
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
from interpress.linalg.one_rank import interpolation_at_rank
from interpress.linalg.ordering import ColumnOrdering
from interpress.linalg.pivoting import order_by_pivoting
from interpress.linalg.precision import has_float64
from interpress.linalg.stream import FactorStream

# Entries above which a float32 matrix is streamed instead of copied: the float64 copy of a matrix
# of this size takes 128 MiB.
_LARGEST_COPY = 2**24


def interpolative_decomposition(
    A: Tensor | np.ndarray[Any, Any],
    *,
    k: int | None = None,
    eps: float | None = None,
    max_entry: float | None = None,
) -> Interpolation:
    """Keep k columns of `A`, or the fewest columns that reach the relative error `eps`.

    Give exactly one of `k` (0 to n) and `eps` (the certified spectral error relative to
    `||A||_2`). `max_entry` (more than 1) bounds `|T|` by strong rank-revealing swaps.

    Return an :class:`Interpolation` with `kept`, `T`, `frobenius_error` and `spectral_error`. `T`
    has the dtype and the device of `A`; `eps` includes the rounding of `T` to that dtype. Errors
    may be computed on first access, from a copy of `A` that the result keeps.

    >>> A = torch.randn(1000, 20) @ torch.randn(20, 64)
    >>> result = interpolative_decomposition(A, eps=1e-3)
    >>> result.k
    20
    >>> (A - A[:, result.kept] @ result.T).norm() < 1e-3 * A.norm()
    tensor(True)
    """
    A = _as_matrix(A)
    if (k is None) == (eps is None):
        received = "neither" if k is None else f"both k={k} and eps={eps}"
        raise ArgumentError(f"give exactly one of k= and eps=; got {received}")
    if k is not None and not (is_whole(k) and 0 <= k <= A.shape[1]):
        raise ArgumentError(f"k={k!r} for {A.shape[1]} columns; give a k from 0 to {A.shape[1]}")
    if k is not None and max_entry is None and A.dtype in (torch.float32, torch.float64):
        quick = interpolation_at_rank(A, k)
        if quick is not None:
            return quick
    ordering = column_ordering(A)
    exact = (
        ordering.for_accuracy(eps, max_entry=max_entry, dtype=A.dtype)
        if eps is not None
        else ordering.at_rank(k, max_entry=max_entry)  # type: ignore[arg-type]
    )
    T, residual = exact.T.to(A).contiguous(), exact.residual
    if A.element_size() < 4:  # rounding T to half precision adds a visible error
        R = torch.empty_like(ordering.R)
        R[:, ordering.columns] = ordering.R
        residual = R - R[:, exact.kept] @ T.to(R)
    return Interpolation(exact.kept.to(A.device), T, lambda: residual)


def column_ordering(A: Tensor | np.ndarray[Any, Any]) -> ColumnOrdering:
    """Return the pivoted factorisation of `A`, which gives the decomposition for every k."""
    A = _as_matrix(A)
    rows, n = A.shape
    if A.dtype != torch.float64 and rows > n and A.numel() > _LARGEST_COPY:
        return order_by_pivoting(FactorStream(n).add(A).factor())
    root = A.double() if has_float64(A.device) else A.cpu().double()
    return order_by_pivoting(RFactor.from_root(root, rows))


def _as_matrix(A: Tensor | np.ndarray[Any, Any]) -> Tensor:
    """Check `A` and return it as a dense float matrix without gradients."""
    if isinstance(A, np.ma.MaskedArray):
        raise ArgumentError("A is a masked array; fill or drop the masked entries first")
    if isinstance(A, np.ndarray):
        if A.dtype.kind not in "fiub":
            raise ArgumentError(f"A has dtype {A.dtype}; convert it to a real float dtype first")
        native = A.dtype.newbyteorder("=") if A.dtype.itemsize <= 8 else np.dtype(np.float64)
        with np.errstate(over="ignore"):  # an overflow becomes Inf, which is reported later
            A = torch.from_numpy(np.array(A, dtype=native, order="C"))
    if not isinstance(A, Tensor):
        raise ArgumentError(f"A is a {type(A).__name__}; pass a torch.Tensor or a NumPy array")
    if A.ndim != 2:
        raise ArgumentError(f"A has shape {tuple(A.shape)}; pass a matrix (rows, columns)")
    if A.layout != torch.strided or A.is_meta:
        raise ArgumentError(
            f"A is a {A.layout} tensor on {A.device}; pass a dense tensor that holds data"
        )
    if not A.is_floating_point():
        raise ArgumentError(f"A has dtype {A.dtype}; convert it to a real float dtype first")
    if A.element_size() == 1:
        A = A.to(torch.float32)  # torch has no arithmetic for float8
    if A.numel() == 0:
        raise ArgumentError(f"A is empty, shape {tuple(A.shape)}; pass at least one row and column")
    return A.detach()
