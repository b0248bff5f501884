"""Rows go in batch by batch, one n x n factor comes out; memory does not grow with the rows.

Two routes, same result up to rounding:

``gram``
    ``G += X.T @ X`` in float64. Products of float32 numbers are exact in float64, so this reaches
    the noise floor of float32 data (|r_kk / r_11| near 1e-7) at the speed of a matrix product.
``tsqr``
    ``R <- qr([R; X])``. No squaring, so it keeps the full precision of its working dtype: for
    float64 data, and for devices on which float64 is slow.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from interpress import storage
from interpress.errors import ArgumentError, DataError, StorageError
from interpress.linalg.factor import RFactor, add_gram, mirror, triangle
from interpress.linalg.ordering import is_whole
from interpress.linalg.precision import check_range, has_fast_float64, has_float64

Route = Literal["auto", "gram", "tsqr"]
_KIND = "factor-stream"


class FactorStream:
    """Accumulates rows of ``Z`` (rows x n) into an :class:`RFactor`.

    >>> stream = FactorStream(n=64)
    >>> for batch in batches:               # (..., 64), any float dtype, any device
    ...     stream.add(batch)
    >>> factor = stream.factor()            # factor.R.T @ factor.R == Z.T @ Z

    ``route`` is normally left at ``"auto"``: ``"tsqr"`` for float64 rows and where float64 is
    slow, else ``"gram"``; it is settled by the first batch. ``dtype`` overrides the arithmetic of
    the ``"tsqr"`` route. A batch with NaN or Inf raises and leaves the stream as it was.
    """

    def __init__(
        self,
        n: int,
        *,
        route: Route = "auto",
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if not is_whole(n) or n < 1:
            raise ArgumentError(f"n={n!r} columns; a stream needs a whole number of at least 1")
        if route not in get_args(Route):
            raise ArgumentError(f"route={route!r}; choose one of {', '.join(get_args(Route))}")
        if dtype not in (None, torch.float32, torch.float64):
            raise ArgumentError(f"dtype={dtype}; the arithmetic is torch.float32 or torch.float64")
        if route == "gram" and dtype == torch.float32:
            raise ArgumentError("a float32 Gram matrix loses half of the digits; use route='tsqr'")
        self.n = int(n)
        self.rows = 0
        self.batches = 0
        self._route: Route = route
        self._dtype = dtype
        self._device = None if device is None else torch.device(device)
        self._sum: _Gram | _Tsqr | None = None

    @property
    def route(self) -> Route:
        """``"auto"`` until the first batch settles it."""
        return self._route

    def add(self, batch: Tensor, *, dim: int = -1) -> FactorStream:
        """Add rows: ``dim`` holds the n channels, every other dimension becomes rows."""
        _check_batch(batch, self.n, dim)
        current = self._sum if self._sum is not None else self._start(batch)
        self._sum = current.plus(self._chunks(batch, dim, current))
        self._route = current.route
        self.rows += batch.numel() // self.n
        self.batches += 1
        return self

    def merge(self, other: FactorStream) -> FactorStream:
        """Add all rows another stream has seen (another process, another shard of the data)."""
        if other.n != self.n:
            raise ArgumentError(
                f"cannot merge a stream of {other.n} columns into one of {self.n}; "
                "merge streams of the same tap"
            )
        if other._sum is None:
            return self
        if self._sum is None:
            self._sum = other._sum.to(self._device) if self._device else other._sum.copy()
        elif self._sum.kind != other._sum.kind:
            raise ArgumentError(
                f"cannot merge a {other._sum.kind} stream into a {self._sum.kind} one; "
                "create both with the same route= (and dtype=)"
            )
        else:
            self._sum = self._sum.merged(other._sum)
        self._route = self._sum.route
        self.rows += other.rows
        self.batches += other.batches
        return self

    def factor(self) -> RFactor:
        """The factor of all rows so far; the stream can go on afterwards."""
        if self._sum is None:
            raise ArgumentError("no rows were added; call add() with at least one batch first")
        return self._sum.factor(self.rows)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a safetensors file, to go on later or to merge elsewhere."""
        fields = {name: str(getattr(self, name)) for name in ("n", "rows", "batches", "route")}
        storage.save_tensors(path, _KIND, self._sum.tensors() if self._sum else {}, fields)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, device: torch.device | str = "cpu"
    ) -> FactorStream:
        """A stream that goes on exactly where the saved one stopped."""
        tensors, fields = storage.load_tensors(path, _KIND)
        try:
            stream = cls(int(fields["n"]), route=fields["route"], device=device)  # type: ignore[arg-type]
            stream.rows, stream.batches = int(fields["rows"]), int(fields["batches"])
            if "gram" in tensors:
                stream._sum = _Gram(tensors["gram"])
            elif "R" in tensors:
                stream._sum = _Tsqr(tensors["R"], tuple(tensors["pending"].split(stream.n)))
        except (KeyError, ValueError) as error:
            raise StorageError(f"{path} lacks or garbles {error}; save the stream again") from error
        if any(t.shape[1:] != (stream.n,) for t in tensors.values()):
            raise StorageError(f"{path} does not hold {stream.n} columns; save the stream again")
        stream._sum = stream._sum.to(stream._device) if stream._sum and stream._device else None
        return stream

    def _start(self, batch: Tensor) -> _Gram | _Tsqr:
        device = self._device or batch.device
        if not has_float64(device):
            device = torch.device("cpu")
        fast = has_fast_float64(device)
        route = self._route
        if route == "auto":
            route = "gram" if fast and batch.dtype != torch.float64 and not self._dtype else "tsqr"
        if route == "gram":
            return _Gram(torch.zeros(self.n, self.n, dtype=torch.float64, device=device))
        exact = fast or batch.dtype == torch.float64
        dtype = self._dtype or (torch.float64 if exact else torch.float32)
        return _Tsqr(torch.zeros(0, self.n, dtype=dtype, device=device))

    def _chunks(self, batch: Tensor, dim: int, target: _Gram | _Tsqr) -> Iterator[Tensor]:
        """Pieces of the batch as finite rows in the working precision, a few MB each."""
        megabytes = 8 if target.device.type == "cpu" else 256
        limit = max(1, megabytes * 2**20 // (8 * self.n))
        for rows in _row_chunks(batch.detach().movedim(dim, -1), limit):
            chunk = rows.to(target.device, target.dtype)
            if not bool(chunk.isfinite().all()):
                raise self._not_finite(batch, dim, limit)
            if target.route == "gram" and batch.dtype == torch.float64:
                check_range(chunk)
            yield chunk

    def _not_finite(self, batch: Tensor, dim: int, limit: int) -> DataError:
        bad_rows, seen, first = 0, 0, ""
        for rows in _row_chunks(batch.detach().movedim(dim, -1), limit):
            bad = ~rows.isfinite()
            hit = bad.any(dim=1).nonzero()[:, 0]
            if len(hit) and not first:
                row = int(hit[0])
                channel = int(bad[row].nonzero()[0, 0])
                first = f"row {seen + row}, channel {channel} is {float(rows[row, channel])}"
            bad_rows, seen = bad_rows + len(hit), seen + len(rows)
        return DataError(
            f"batch {self.batches}: {bad_rows} of its {seen} rows hold NaN or Inf (first: {first});"
            f" the {self.rows} rows added before are kept. Drop or repair these examples, or run "
            "the model in float32 if half precision overflows"
        )

    def __repr__(self) -> str:
        return f"FactorStream(n={self.n}, rows={self.rows}, route={self.route!r})"


@dataclass(frozen=True)
class _Gram:
    """``total = Z.T @ Z``; only its upper block triangle is kept up to date."""

    total: Tensor
    route: Literal["gram"] = "gram"

    kind = "float64 gram"
    dtype = torch.float64

    @property
    def device(self) -> torch.device:
        return self.total.device

    def plus(self, chunks: Iterator[Tensor]) -> _Gram:
        total = self.total.clone()
        for chunk in chunks:
            add_gram(total, chunk)
        return replace(self, total=total)

    def merged(self, other: _Gram | _Tsqr) -> _Gram:
        assert isinstance(other, _Gram)
        return replace(self, total=self.total + other.total.to(self.device))

    def factor(self, rows: int) -> RFactor:
        return RFactor.from_gram(mirror(self.total.clone()), rows)

    def tensors(self) -> dict[str, Tensor]:
        return {"gram": self.total}

    def to(self, device: torch.device) -> _Gram:
        return replace(self, total=self.total.to(device))

    def copy(self) -> _Gram:
        return replace(self, total=self.total.clone())


@dataclass(frozen=True)
class _Tsqr:
    """``R`` of all folded rows, and pending rows that wait until a QR of them is worth it."""

    R: Tensor
    pending: tuple[Tensor, ...] = ()
    route: Literal["tsqr"] = "tsqr"

    @property
    def kind(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} tsqr"

    @property
    def device(self) -> torch.device:
        return self.R.device

    @property
    def dtype(self) -> torch.dtype:
        return self.R.dtype

    def plus(self, chunks: Iterator[Tensor]) -> _Tsqr:
        state = self
        for chunk in chunks:
            # a clone: float64 rows arrive as views of the caller's own batch
            state = replace(state, pending=(*state.pending, chunk.clone()))
            if sum(map(len, state.pending)) >= state.R.shape[1]:
                state = state.folded()
        return state

    def folded(self) -> _Tsqr:
        if not self.pending:
            return self
        return replace(self, R=triangle(torch.cat([self.R, *self.pending])), pending=())

    def merged(self, other: _Gram | _Tsqr) -> _Tsqr:
        assert isinstance(other, _Tsqr)
        theirs = other.to(self.device)
        return replace(self, pending=(*self.pending, theirs.R, *theirs.pending)).folded()

    def factor(self, rows: int) -> RFactor:
        return RFactor.from_root(self.folded().R, rows)

    def tensors(self) -> dict[str, Tensor]:
        return {"R": self.R, "pending": torch.cat([self.R[:0], *self.pending])}

    def to(self, device: torch.device) -> _Tsqr:
        return replace(
            self, R=self.R.to(device), pending=tuple(rows.to(device) for rows in self.pending)
        )

    def copy(self) -> _Tsqr:
        return self  # nothing here is ever written in place


def _row_chunks(batch: Tensor, limit: int) -> Iterator[Tensor]:
    """Split (..., n) into matrices of at most ``limit`` rows without copying all of it at once."""
    if batch.ndim == 1:
        yield batch[None, :]
        return
    rows_per_item = batch[0].numel() // batch.shape[-1]
    if rows_per_item > limit:
        for item in batch:
            yield from _row_chunks(item, limit)
        return
    for piece in batch.split(max(1, limit // rows_per_item)):
        yield piece.reshape(-1, batch.shape[-1])


def _check_batch(batch: Tensor, n: int, dim: int) -> None:
    if not isinstance(batch, Tensor):
        raise ArgumentError(f"got a {type(batch).__name__}; pass a torch.Tensor of rows")
    if not batch.is_floating_point():
        raise ArgumentError(f"rows of dtype {batch.dtype}; convert them to a float dtype first")
    if batch.ndim < 1 or not -batch.ndim <= dim < batch.ndim:
        raise ArgumentError(
            f"dim={dim} of a tensor of shape {tuple(batch.shape)}; choose one it has"
        )
    if batch.shape[dim] != n:
        raise ArgumentError(
            f"dimension {dim} of shape {tuple(batch.shape)} has {batch.shape[dim]} channels, "
            f"this stream has {n}; name the channel dimension with dim="
        )
    if batch.numel() == 0:
        raise ArgumentError(f"an empty batch of shape {tuple(batch.shape)}; pass at least one row")
