"""The result of an interpolative decomposition: kept columns, `T`, and its errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from interpress.linalg.norms import spectral_norm


@dataclass(frozen=True, eq=False)
class Interpolation:
    """`Z ~= Z[:, kept] @ T` with k of n columns kept.

    `T[:, kept]` is exactly the identity. Errors are absolute norms of `Z - Z[:, kept] @ T`.
    """

    kept: Tensor  #: (k,) column indices, most important first
    T: Tensor  #: (k, n) interpolation matrix
    #: returns the residual; called at most once, because it can take longer than `T` itself
    compute_residual: Callable[[], Tensor] = field(repr=False)

    @cached_property
    def residual(self) -> Tensor:
        """A matrix with the singular values of `Z - Z[:, kept] @ T`, computed on first access."""
        return self.compute_residual()

    @property
    def k(self) -> int:
        """Number of kept columns."""
        return self.T.shape[0]

    @property
    def n(self) -> int:
        """Number of columns of `Z`."""
        return self.T.shape[1]

    @cached_property
    def frobenius_error(self) -> float:
        """`||Z - Z[:, kept] @ T||_F`, computed on first access."""
        return float(torch.linalg.matrix_norm(self.residual)) if self.residual.numel() else 0.0

    @cached_property
    def spectral_error(self) -> float:
        """`||Z - Z[:, kept] @ T||_2`, computed on first access."""
        return spectral_norm(self.residual)

    @cached_property
    def T_norm(self) -> float:
        """`||T||_F` of the dropped columns: bounds how much errors in the kept ones can grow."""
        return math.sqrt(max(float(torch.linalg.matrix_norm(self.T)) ** 2 - self.k, 0.0))

    @property
    def largest_entry(self) -> float:
        """`max |T|` of the dropped columns."""
        dropped = torch.ones(self.n, dtype=torch.bool, device=self.T.device)
        dropped[self.kept] = False
        entries = self.T[:, dropped]
        return float(entries.abs().max()) if entries.numel() else 0.0

    def __repr__(self) -> str:
        # The errors are left out: the first access to one of them can take long.
        return f"Interpolation(k={self.k}, n={self.n}, largest_entry={self.largest_entry:.3g})"


def interpolation_matrix(
    kept: Tensor, outside: Tensor, coefficients: Tensor, basis: Tensor | None = None
) -> Tensor:
    """Return `T` (k x n): the identity at the columns `kept`, `coefficients` at `outside`.

    `coefficients` (b x outside) belong to the rows `basis` (b,) of `T`, or to all rows if `basis`
    is None. A column in both `kept` and `outside` gets the identity.
    """
    T = coefficients.new_zeros(len(kept), len(outside) + len(coefficients))
    if basis is None:
        T.index_copy_(1, outside, coefficients)
    else:
        T[basis[:, None], outside] = coefficients
        T[:, kept] = 0
    T[torch.arange(len(kept), device=T.device), kept] = 1
    return T
