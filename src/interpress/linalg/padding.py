"""Columns of zeros that keep the rows of a matrix off the same sets of the CPU's cache.

Entries of one column lie one row apart in memory. If the length of a row is a multiple of a large
power of two bytes, these entries share a few sets of the cache and evict each other. LAPACK's
pivoted Cholesky factorisation, which swaps columns, then takes up to three times as long.
"""

from __future__ import annotations

from torch import Tensor

_LINE = 64  # bytes of a cache line
# Rows of a multiple of this many bytes are lengthened. The time of a pivoted Cholesky factorisation
# rises from multiples of 512 bytes on.
_CONFLICT = 512


def padding(n: int, element_size: int) -> int:
    """Return how many columns of zeros, at least one, keep n columns from conflicting."""
    row_bytes = -(-(n + 1) * element_size // _LINE) * _LINE
    if row_bytes % _CONFLICT == 0:
        row_bytes += _LINE
    return row_bytes // element_size - n


def padded(matrix: Tensor) -> Tensor:
    """Return a copy of `matrix` with columns of zeros behind its own columns."""
    rows, n = matrix.shape
    copy = matrix.new_empty(rows, n + padding(n, matrix.element_size()))
    copy[:, :n] = matrix
    copy[:, n:] = 0
    return copy
