"""What a stream keeps of the rows it has seen: a Gram matrix or a triangular factor.

A sum is never changed in place: a batch that fails half-way, or is interrupted, leaves no trace.
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

_CHUNK = 2**19  # numbers handled at a time on a CPU: 4 MB of float64
_PIECES = 64  # small batches that wait before they are put together
_FEW = 128  # rows for which a matrix product of their own is too little
_LEAF = 256  # rows of one float32 QR; its rounding grows with them


@dataclass(frozen=True, eq=False)
class RowSum(ABC):
    """Rows folded into ``total`` so far, and rows that wait until folding them is worth it."""

    total: Tensor
    home: torch.device  #: where rows are taken in
    pending: tuple[Tensor, ...] = ()
    additions: int = 0  #: how often rows were folded in; each time rounds

    kind: ClassVar[str]  #: two sums can be merged if this agrees
    route: ClassVar[Literal["gram", "tsqr"]]
    dtype: ClassVar[torch.dtype] = torch.float64  #: rows are taken in as this
    magnitudes: ClassVar[tuple[float, float]] = (SMALLEST, LARGEST)  #: whose squares are safe

    @classmethod
    def empty(cls, n: int, home: torch.device) -> Self:
        """No rows yet."""
        rows = n if cls.route == "gram" else 0
        return cls(torch.zeros(rows, n, dtype=torch.float64, device=cls._place(home)), home)

    @classmethod
    def _place(cls, home: torch.device) -> torch.device:
        return home

    @property
    def rows_at_once(self) -> int:
        """How many rows are worth folding in together."""
        n = self.total.shape[1]
        return max(n, (_CHUNK if self.home.type == "cpu" else 64 * _CHUNK) // n)

    def plus(self, chunks: Iterable[Tensor]) -> Self:
        """With more rows, which from now on are this sum's own."""
        state = self
        for chunk in chunks:
            state = replace(state, pending=(*state.pending, chunk))
            if sum(map(len, state.pending)) >= self.rows_at_once:
                state = state.folded()
            elif len(state.pending) >= _PIECES:
                state = replace(state, pending=(torch.cat(state.pending),))
        return state

    def folded(self) -> Self:
        """With no rows waiting."""
        if not self.pending:
            return self
        total = self._fold(self.pending)
        return replace(self, total=total, pending=(), additions=self.additions + 1)

    def merged(self, other: RowSum) -> Self:
        """With all rows of another one of the same kind."""
        ours, theirs = self.folded(), other.to(self.home).folded()
        additions = ours.additions + theirs.additions
        return replace(ours, total=ours._join(theirs.total), additions=additions)

    def to(self, home: torch.device) -> Self:
        """The same elsewhere."""
        pending = tuple(rows.to(home) for rows in self.pending)
        return replace(self, total=self.total.to(self._place(home)), home=home, pending=pending)

    def tensors(self) -> dict[str, Tensor]:
        """All of it, for a file."""
        return {"total": self.total, "pending": torch.cat([self._none(), *self.pending])}

    @classmethod
    def restored(cls, tensors: dict[str, Tensor], n: int, additions: int) -> Self:
        """From :meth:`tensors`, after a look at them."""
        total, pending = tensors["total"], tensors["pending"]
        if additions < 0 or len(tensors) != 2:
            raise ValueError("its tensors")
        rows_fit = len(total) == n if cls.route == "gram" else len(total) <= n
        if not rows_fit or total.shape[1:] != (n,) or total.dtype != torch.float64:
            raise ValueError("its total")
        if pending.shape[1:] != (n,) or pending.dtype != cls.dtype:
            raise ValueError("its pending rows")
        waiting = (pending,) if len(pending) else ()
        return cls(total, torch.device("cpu"), waiting, additions)

    def _none(self) -> Tensor:
        return torch.zeros(0, self.total.shape[1], dtype=self.dtype, device=self.home)

    @abstractmethod
    def _fold(self, pieces: tuple[Tensor, ...]) -> Tensor:
        """``total`` with these rows."""

    @abstractmethod
    def _join(self, total: Tensor) -> Tensor:
        """``total`` with another total."""

    @abstractmethod
    def factor(self, rows: int) -> RFactor:
        """What it is all for."""


class GramSum(RowSum):
    """``total = Z.T @ Z``, of which only the upper block triangle is kept up to date."""

    kind = "float64 gram"
    route = "gram"

    @property
    def rows_at_once(self) -> int:
        """So few on a CPU that rounding, which there can grow with them, stays small."""
        n = self.total.shape[1]
        return max(n, CHAIN) if self.home.type == "cpu" else super().rows_at_once

    def _fold(self, pieces: tuple[Tensor, ...]) -> Tensor:
        large = [rows for rows in pieces if len(rows) >= _FEW]
        small = [rows for rows in pieces if len(rows) < _FEW]
        part = torch.zeros_like(self.total)
        for rows in [*large, torch.cat(small)] if small else large:
            add_gram(part, rows)
        return part.add_(self.total)

    def _join(self, total: Tensor) -> Tensor:
        return self.total + total

    def factor(self, rows: int) -> RFactor:
        """The Gram matrix, whole."""
        done = self.folded()
        return RFactor.from_gram(mirror(done.total.clone()), rows, additions=done.additions)


class TsqrSum(RowSum):
    """``total = R``, by orthogonal factorizations in float64 from beginning to end."""

    kind = "float64 tsqr"
    route = "tsqr"

    def _fold(self, pieces: tuple[Tensor, ...]) -> Tensor:
        return triangle(torch.cat([self.total, *pieces]))

    def _join(self, total: Tensor) -> Tensor:
        return triangle(torch.cat([self.total, total]))

    def factor(self, rows: int) -> RFactor:
        """The triangle."""
        done = self.folded()
        return RFactor.from_root(done.total, rows, additions=done.additions)


class SinglePrecisionTsqrSum(TsqrSum):
    """``total = R`` where float64 is slow: leaves of rows in float32 there, joined on the host.

    Joining in float64 keeps rounding from growing with the number of leaves.
    """

    kind = "float32 tsqr"
    dtype = torch.float32
    magnitudes = (1e-37, 3e38)

    @classmethod
    def _place(cls, home: torch.device) -> torch.device:
        return torch.device("cpu")

    @property
    def rows_at_once(self) -> int:
        """Few enough for float32 to sum."""
        return max(self.total.shape[1], _LEAF)

    def _fold(self, pieces: tuple[Tensor, ...]) -> Tensor:
        rows = torch.cat(pieces)
        largest = largest_magnitude(rows)
        scale = 2.0 ** math.frexp(largest)[1]  # squares must stay within float32
        return self._join(triangle(rows / scale).cpu().double() * scale)

    def factor(self, rows: int) -> RFactor:
        """The triangle, with the noise floor of its leaves."""
        floor = 8.0 * EPS32 * max(1.0, self.rows_at_once / _LEAF)
        return RFactor(rows, floor, root=self.folded().total)


KINDS: dict[str, type[RowSum]] = {
    sum_type.kind: sum_type for sum_type in (GramSum, TsqrSum, SinglePrecisionTsqrSum)
}
