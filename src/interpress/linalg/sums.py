"""The accumulated state of a stream: a Gram matrix or a triangular factor.

A sum is immutable. A batch that fails or is interrupted therefore leaves the stream unchanged.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import Self

from interpress.linalg.factor import RFactor, add_gram, mirror, triangle
from interpress.linalg.precision import CHAIN, EPS32, LARGEST, SMALLEST, largest_magnitude

_CHUNK = 2**19  # numbers in one chunk of rows on a CPU: 4 MB of float64
_MAX_PENDING = 64  # small batches that wait before they are concatenated
_MOST_PENDING_ROWS = 4096  # so that pending rows take less memory than a very wide total
_FEW_ROWS = 128  # batches with fewer rows are concatenated before the matrix product
_LEAF_ROWS = 256  # rows of one float32 QR; its rounding error grows with them


@dataclass(frozen=True, eq=False)
class RowSum(ABC):
    """Rows accumulated in `total`, and pending rows that wait for a larger, cheaper update."""

    total: Tensor
    row_device: torch.device  #: device on which rows are accepted
    pending: tuple[Tensor, ...] = ()
    additions: int = 0  #: number of updates of `total`; each one adds a rounding error

    kind: ClassVar[str]  #: two sums of the same kind can be merged
    route: ClassVar[Literal["gram", "tsqr"]]
    dtype: ClassVar[torch.dtype] = torch.float64  #: dtype in which rows are accepted
    #: smallest and largest magnitude whose squares the arithmetic can hold
    magnitudes: ClassVar[tuple[float, float]] = (SMALLEST, LARGEST)

    @classmethod
    def empty(cls, n: int, row_device: torch.device) -> Self:
        """Return a sum without rows."""
        rows = n if cls.route == "gram" else 0
        device = cls._total_device(row_device)
        return cls(torch.zeros(rows, n, dtype=torch.float64, device=device), row_device)

    @classmethod
    def _total_device(cls, row_device: torch.device) -> torch.device:
        return row_device

    @property
    def rows_per_update(self) -> int:
        """Number of pending rows from which `total` is updated."""
        n = self.total.shape[1]
        chunk = _CHUNK if self.row_device.type == "cpu" else 64 * _CHUNK
        return max(min(n, _MOST_PENDING_ROWS), chunk // n)

    def plus(self, chunks: Iterable[Tensor]) -> Self:
        """Return the sum with more rows. It keeps the chunks, which must not change afterwards."""
        state = self
        for chunk in chunks:
            state = replace(state, pending=(*state.pending, chunk))
            if sum(map(len, state.pending)) >= self.rows_per_update:
                state = state.flushed()
            elif len(state.pending) >= _MAX_PENDING:
                state = replace(state, pending=(torch.cat(state.pending),))
        return state

    def flushed(self) -> Self:
        """Return the sum with all pending rows added to `total`."""
        if not self.pending:
            return self
        total = self._updated_total(self.pending)
        return replace(self, total=total, pending=(), additions=self.additions + 1)

    def merged(self, other: RowSum) -> Self:
        """Return the sum with all rows of another sum of the same kind."""
        left, right = self.flushed(), other.to(self.row_device).flushed()
        additions = left.additions + right.additions
        return replace(left, total=left._merged_total(right.total), additions=additions)

    def to(self, row_device: torch.device) -> Self:
        """Return the sum on another device."""
        pending = tuple(rows.to(row_device) for rows in self.pending)
        total = self.total.to(self._total_device(row_device))
        return replace(self, total=total, row_device=row_device, pending=pending)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors from which :meth:`restored` rebuilds the sum."""
        n = self.total.shape[1]
        no_rows = torch.zeros(0, n, dtype=self.dtype, device=self.row_device)
        return {"total": self.total, "pending": torch.cat([no_rows, *self.pending])}

    @classmethod
    def restored(cls, tensors: dict[str, Tensor], n: int, additions: int) -> Self:
        """Rebuild the sum from the output of :meth:`tensors`; raise ValueError if it is damaged."""
        total, pending = tensors["total"], tensors["pending"]
        if additions < 0:
            raise ValueError(f"additions={additions}")
        if len(tensors) != 2:
            raise ValueError(f"{len(tensors)} tensors instead of 2")
        rows_fit = len(total) == n if cls.route == "gram" else len(total) <= n
        if not rows_fit or total.shape[1:] != (n,) or total.dtype != torch.float64:
            raise ValueError(f"total of shape {tuple(total.shape)} and dtype {total.dtype}")
        if pending.shape[1:] != (n,) or pending.dtype != cls.dtype:
            raise ValueError(f"pending of shape {tuple(pending.shape)} and dtype {pending.dtype}")
        return cls(total, torch.device("cpu"), (pending,) if len(pending) else (), additions)

    @abstractmethod
    def _updated_total(self, pieces: tuple[Tensor, ...]) -> Tensor:
        """Return `total` with these rows."""

    @abstractmethod
    def _merged_total(self, total: Tensor) -> Tensor:
        """Return `total` merged with another total."""

    @abstractmethod
    def factor(self, rows: int) -> RFactor:
        """Return the factor of all rows; `rows` is their number."""


class GramSum(RowSum):
    """`total = Z.T @ Z`; only its upper block triangle is up to date."""

    kind = "float64 gram"
    route = "gram"

    @property
    def rows_per_update(self) -> int:
        """Number of rows of one product, few enough on a CPU to keep its rounding error small."""
        n = self.total.shape[1]
        on_cpu = self.row_device.type == "cpu"
        return max(min(n, _MOST_PENDING_ROWS), CHAIN) if on_cpu else super().rows_per_update

    def _updated_total(self, pieces: tuple[Tensor, ...]) -> Tensor:
        large = [rows for rows in pieces if len(rows) >= _FEW_ROWS]
        small = [rows for rows in pieces if len(rows) < _FEW_ROWS]
        update = torch.zeros_like(self.total)
        for rows in [*large, torch.cat(small)] if small else large:
            add_gram(update, rows)
        return update.add_(self.total)

    def _merged_total(self, total: Tensor) -> Tensor:
        return self.total + total

    def factor(self, rows: int) -> RFactor:
        """Return the factor with the full Gram matrix."""
        flushed = self.flushed()
        return RFactor.from_gram(mirror(flushed.total.clone()), rows, additions=flushed.additions)


class TsqrSum(RowSum):
    """`total = R`, computed by float64 QR factorisations."""

    kind = "float64 tsqr"
    route = "tsqr"

    def _updated_total(self, pieces: tuple[Tensor, ...]) -> Tensor:
        return triangle(torch.cat([self.total, *pieces]))

    def _merged_total(self, total: Tensor) -> Tensor:
        return triangle(torch.cat([self.total, total]))

    def factor(self, rows: int) -> RFactor:
        """Return the factor with `R` as its root."""
        flushed = self.flushed()
        return RFactor.from_root(flushed.total, rows, additions=flushed.additions)


class SinglePrecisionTsqrSum(TsqrSum):
    """`total = R` for devices with slow float64: QR of row blocks in float32, merged on the host.

    Merging in float64 keeps the rounding error from growing with the number of blocks.
    """

    kind = "float32 tsqr"
    dtype = torch.float32
    magnitudes = (1e-37, 3e38)

    @classmethod
    def _total_device(cls, row_device: torch.device) -> torch.device:
        return torch.device("cpu")

    @property
    def rows_per_update(self) -> int:
        """Number of rows of one float32 QR, few enough to keep its rounding error small."""
        return max(self.total.shape[1], _LEAF_ROWS)

    def _updated_total(self, pieces: tuple[Tensor, ...]) -> Tensor:
        rows = torch.cat(pieces)
        largest = largest_magnitude(rows)
        scale = 2.0 ** math.frexp(largest)[1]  # keeps squares within the range of float32
        return self._merged_total(triangle(rows / scale).cpu().double() * scale)

    def factor(self, rows: int) -> RFactor:
        """Return the factor with `R` as its root and the floor of the float32 QRs."""
        floor = 8.0 * EPS32 * max(1.0, self.rows_per_update / _LEAF_ROWS)
        return RFactor(rows, floor, root=self.flushed().total)


KINDS: dict[str, type[RowSum]] = {
    sum_type.kind: sum_type for sum_type in (GramSum, TsqrSum, SinglePrecisionTsqrSum)
}
