"""The result of an interpolative decomposition: kept columns, `T`, and its errors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from interpress.linalg.norms import spectral_norm


@dataclass(frozen=True, eq=False)
class Interpolation:
    """``Z ~= Z[:, kept] @ T`` with k of n columns kept.

    ``T[:, kept]`` is exactly the identity. Errors are absolute norms of ``Z - Z[:, kept] @ T``.
    """

    kept: Tensor  #: (k,) column indices, most important first
    T: Tensor  #: (k, n) interpolation matrix
    residual: Tensor = field(repr=False)  #: ``R22``: same singular values as Z - Z[:, kept] @ T

    @property
    def k(self) -> int:
        """How many columns are kept."""
        return self.T.shape[0]

    @property
    def n(self) -> int:
        """How many columns there were."""
        return self.T.shape[1]

    @cached_property
    def frobenius_error(self) -> float:
        """``||Z - Z[:, kept] @ T||_F``."""
        return float(torch.linalg.matrix_norm(self.residual)) if self.residual.numel() else 0.0

    @cached_property
    def spectral_error(self) -> float:
        """``||Z - Z[:, kept] @ T||_2``, computed (not bounded) the first time it is asked for."""
        return spectral_norm(self.residual)

    @cached_property
    def T_norm(self) -> float:
        """``||T||_F`` of the dropped columns: how much rounding in the kept ones can grow."""
        return math.sqrt(max(float(torch.linalg.matrix_norm(self.T)) ** 2 - self.k, 0.0))

    @property
    def largest_entry(self) -> float:
        """``max |T|`` of the dropped columns: how much of a kept one goes into another."""
        dropped = torch.ones(self.n, dtype=torch.bool, device=self.T.device)
        dropped[self.kept] = False
        entries = self.T[:, dropped]
        return float(entries.abs().max()) if entries.numel() else 0.0

    def __repr__(self) -> str:
        return (
            f"Interpolation(k={self.k}, n={self.n}, frobenius_error={self.frobenius_error:.3g}, "
            f"largest_entry={self.largest_entry:.3g})"
        )


def interpolation_matrix(
    kept: Tensor, rest: Tensor, coefficients: Tensor, basis: Tensor | None = None
) -> Tensor:
    """``T`` (k x n): the identity at ``kept``, ``coefficients`` of the ``basis`` rows elsewhere."""
    k, n = len(kept), len(rest) + coefficients.shape[0]
    by_column = coefficients.new_zeros(n, k)  # T.T, so that one column is one contiguous row
    if basis is None:
        by_column[rest] = coefficients.T
    else:
        by_column[rest[:, None], basis] = coefficients.T
    by_column[kept] = torch.eye(k, dtype=by_column.dtype, device=by_column.device)
    return by_column.T
