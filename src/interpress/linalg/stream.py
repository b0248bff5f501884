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

from collections.abc import Iterator
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from interpress.checks import is_whole
from interpress.errors import ArgumentError, DataError
from interpress.linalg.factor import RFactor
from interpress.linalg.precision import has_fast_float64, has_float64, largest_magnitude
from interpress.linalg.sums import KINDS, GramSum, RowSum, SinglePrecisionTsqrSum, TsqrSum

Route = Literal["auto", "gram", "tsqr"]


class FactorStream:
    """Accumulates rows of ``Z`` (rows x n) into an :class:`RFactor`.

    >>> stream = FactorStream(n=64)
    >>> for batch in batches:               # (..., 64), any float dtype, any device
    ...     stream.add(batch)
    >>> factor = stream.factor()            # factor.R.T @ factor.R == Z.T @ Z

    ``route`` is normally left at ``"auto"``: ``"tsqr"`` for float64 rows and where float64 is
    slow, else ``"gram"``; it is settled by the first batch. ``dtype`` overrides the arithmetic of
    the ``"tsqr"`` route. A batch with NaN or Inf raises and leaves the stream as it was.
    Later float64 batches of a stream that began with float32 ones get float32's noise floor.
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
        self._route: Route = "tsqr" if dtype is not None and route == "auto" else route
        self._dtype = dtype
        self._device = None if device is None else torch.device(device)
        self._sum: RowSum | None = None
        self._largest = 0.0

    @property
    def route(self) -> Route:
        """``"auto"`` until the first batch settles it."""
        return self._route

    def add(self, batch: Tensor, *, dim: int = -1) -> FactorStream:
        """Add rows: ``dim`` holds the n channels, every other dimension becomes rows."""
        _check_batch(batch, self.n, dim)
        current = self._sum if self._sum is not None else self._start(batch)
        largest = [self._largest]
        self._sum = current.plus(self._chunks(batch, dim, current, largest))
        self._largest = max(largest)
        self._route = current.route
        self.rows += batch.numel() // self.n
        self.batches += 1
        return self

    def merge(self, other: FactorStream) -> FactorStream:
        """Add all rows another stream has seen (another process, another shard of the data)."""
        if not isinstance(other, FactorStream):
            raise ArgumentError(f"got a {type(other).__name__}; pass another FactorStream")
        if other.n != self.n:
            raise ArgumentError(
                f"cannot merge a stream of {other.n} columns into one of {self.n}; "
                "merge streams of the same tap"
            )
        if other._sum is None:
            return self
        wanted = self._sum.kind if self._sum is not None else self._wish()
        if wanted not in ("auto", other._sum.route, other._sum.kind):
            raise ArgumentError(
                f"cannot merge a {other._sum.kind} stream into a {wanted} one; "
                "create both with the same route= (and dtype=)"
            )
        if self._sum is None:
            self._sum = other._sum.to(self._device) if self._device else other._sum
        else:
            self._sum = self._sum.merged(other._sum)
        self._route = self._sum.route
        self.rows += other.rows
        self.batches += other.batches
        self._largest = max(self._largest, other._largest)
        return self

    def _wish(self) -> str:
        """The kind of sum asked for, as far as anything was asked for."""
        if self._dtype is None:
            return self._route
        return f"{str(self._dtype).removeprefix('torch.')} {self._route}"

    def factor(self) -> RFactor:
        """The factor of all rows so far; the stream can go on afterwards."""
        if self._sum is None:
            raise ArgumentError("no rows were added; call add() with at least one batch first")
        if 0 < self._largest < self._sum.magnitudes[0]:
            raise DataError(
                f"the largest magnitude is {self._largest:.1e}, too small to square in the "
                "arithmetic of this stream; scale the data up (T does not change)"
            )
        return self._sum.factor(self.rows)

    def state(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Return tensors and fields from which `from_state` rebuilds the stream."""
        fields = {name: str(getattr(self, name)) for name in ("n", "rows", "batches", "route")}
        fields["dtype"] = str(self._dtype).removeprefix("torch.")
        if self._sum is None:
            return {}, fields
        fields |= {"kind": self._sum.kind, "additions": str(self._sum.additions)}
        fields["largest"] = repr(self._largest)
        return self._sum.tensors(), fields

    @classmethod
    def from_state(
        cls,
        tensors: dict[str, Tensor],
        fields: dict[str, str],
        *,
        device: torch.device | str | None = None,
    ) -> FactorStream:
        """Return a stream that continues exactly where the one that gave `state` stopped."""
        try:
            dtype = None if fields["dtype"] == "None" else getattr(torch, fields["dtype"])
            route: Any = fields["route"]
            stream = cls(int(fields["n"]), route=route, dtype=dtype, device=device)
            stream.rows, stream.batches = int(fields["rows"]), int(fields["batches"])
            if "kind" in fields:
                kind, additions = KINDS[fields["kind"]], int(fields["additions"])
                stream._sum = kind.restored(tensors, stream.n, additions)
                stream._largest = float(fields["largest"])
                if stream.route != kind.route:
                    raise ValueError("its route")
        except (KeyError, ValueError, AttributeError, TypeError) as error:
            raise DataError(f"the state of the stream lacks or garbles {error}") from error
        if (stream._sum is None) != (stream.rows == 0) or min(stream.rows, stream.batches) < 0:
            raise DataError(f"the state of the stream counts {stream.rows} rows, which cannot be")
        if stream._sum is not None and stream._device is not None:
            stream._sum = stream._sum.to(stream._device)
        return stream

    def _start(self, batch: Tensor) -> RowSum:
        device = self._device or batch.device
        if not has_float64(device):
            device = torch.device("cpu")
        fast = has_fast_float64(device)
        route = self._route
        if route == "auto":
            route = "gram" if fast and batch.dtype != torch.float64 else "tsqr"
        if route == "gram":
            return GramSum.empty(self.n, device)
        exact = fast or batch.dtype == torch.float64
        dtype = self._dtype or (torch.float64 if exact else torch.float32)
        kind = TsqrSum if dtype == torch.float64 else SinglePrecisionTsqrSum
        return kind.empty(self.n, device)

    def _chunks(
        self, batch: Tensor, dim: int, target: RowSum, magnitudes: list[float]
    ) -> Iterator[Tensor]:
        """Pieces of the batch as finite rows in the working precision, a few MB each."""
        for rows in _row_chunks(batch.detach().movedim(dim, -1), target.rows_at_once):
            chunk = rows.to(target.home, target.dtype, copy=True)  # the batch stays the caller's
            largest = largest_magnitude(rows if rows.element_size() >= 4 else chunk)
            if not largest <= target.magnitudes[1]:
                raise self._unusable(batch, dim, target.rows_at_once)
            magnitudes.append(largest)
            yield chunk

    def _unusable(self, batch: Tensor, dim: int, limit: int) -> DataError:
        bad_rows, seen, largest, first = 0, 0, 0.0, ""
        for rows in _row_chunks(batch.detach().movedim(dim, -1), limit):
            rows = rows.double() if has_float64(rows.device) else rows.cpu().double()
            bad = ~rows.isfinite()
            hit = bad.any(dim=1).nonzero()[:, 0]
            if len(hit) and not first:
                row = int(hit[0])
                channel = int(bad[row].nonzero()[0, 0])
                first = f"row {seen + row}, channel {channel} is {float(rows[row, channel])}"
            bad_rows, seen = bad_rows + len(hit), seen + len(rows)
            largest = max(largest, float(rows.abs().max()))
        kept = f"the {self.rows} rows added before are kept"
        if not bad_rows:
            return DataError(
                f"batch {self.batches + 1} holds a magnitude of {largest:.1e}, too large to square "
                f"in the arithmetic of this stream; {kept}. Scale the data down (the interpolation "
                "matrix does not change)"
            )
        return DataError(
            f"batch {self.batches + 1}: {bad_rows} of its {seen} rows hold NaN or Inf (first: "
            f"{first}); {kept}. Drop or repair these examples, or run the model in float32 if "
            "half precision overflows"
        )

    def __repr__(self) -> str:
        return f"FactorStream(n={self.n}, rows={self.rows}, route={self.route!r})"


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
    if batch.layout != torch.strided or batch.is_meta:
        raise ArgumentError(
            f"a {batch.layout} tensor on {batch.device}; pass a dense one with data"
        )
    if not batch.is_floating_point():
        raise ArgumentError(f"rows of dtype {batch.dtype}; convert them to a float dtype first")
    if not is_whole(dim) or not -batch.ndim <= dim < batch.ndim:
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
