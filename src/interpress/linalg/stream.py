"""Reduce rows, batch by batch, to one n x n factor; memory does not grow with the rows.

Two routes give the same factor up to rounding:

`gram`
    `G += X.T @ X` in float64. Products of float32 numbers are exact in float64, so this resolves
    float32 data down to its rounding error (|r_kk / r_11| near 1e-7) at the speed of a matrix
    product.
`tsqr`
    `R <- qr([R; X])`. Nothing is squared, so this keeps the full precision of its dtype. It is used
    for float64 data and for devices on which float64 is slow.
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
    """Accumulates rows of `Z` (rows x n) into an :class:`RFactor`.

    >>> stream = FactorStream(n=64)
    >>> for batch in batches:               # (..., 64), any float dtype, any device
    ...     stream.add(batch)
    >>> factor = stream.factor()            # factor.R.T @ factor.R == Z.T @ Z

    With `route="auto"`, the first batch decides: `"tsqr"` for float64 rows and for devices with
    slow float64, `"gram"` otherwise. `dtype` sets the arithmetic of the `"tsqr"` route. A batch
    with NaN or Inf raises an error and leaves the stream unchanged. If the first batch is float32,
    later float64 batches are resolved only to the floor of float32.
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
            raise ArgumentError(f"n={n!r} columns; give a whole number of at least 1")
        if route not in get_args(Route):
            raise ArgumentError(f"route={route!r}; choose one of {', '.join(get_args(Route))}")
        if dtype not in (None, torch.float32, torch.float64):
            raise ArgumentError(f"dtype={dtype}; choose torch.float32 or torch.float64")
        if route == "gram" and dtype == torch.float32:
            raise ArgumentError(
                "a float32 Gram matrix loses half of the digits; use route='tsqr' with "
                "dtype=torch.float32"
            )
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
        """The route; `"auto"` until the first batch decides."""
        return self._route

    def add(self, batch: Tensor, *, dim: int = -1) -> FactorStream:
        """Add rows: `dim` is the dimension of the n channels, all others are flattened to rows."""
        _check_batch(batch, self.n, dim)
        current = self._sum if self._sum is not None else self._empty_sum(batch)
        magnitudes = [self._largest]
        self._sum = current.plus(self._chunks(batch, dim, current, magnitudes))
        self._largest = max(magnitudes)
        self._route = current.route
        self.rows += batch.numel() // self.n
        self.batches += 1
        return self

    def merge(self, other: FactorStream) -> FactorStream:
        """Add all rows of another stream (of another process or another shard of the data)."""
        if not isinstance(other, FactorStream):
            raise ArgumentError(f"got a {type(other).__name__}; pass another FactorStream")
        if other.n != self.n:
            raise ArgumentError(
                f"cannot merge a stream of {other.n} columns into one of {self.n}; "
                "merge streams of the same tap"
            )
        if other._sum is None:
            return self
        kind = self._sum.kind if self._sum is not None else self._requested_kind()
        if kind not in ("auto", other._sum.route, other._sum.kind):
            raise ArgumentError(
                f"cannot merge a {other._sum.kind} stream into a {kind} one; "
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

    def _requested_kind(self) -> str:
        """Return the kind of sum that the arguments ask for; the route alone without a dtype."""
        if self._dtype is None:
            return self._route
        return f"{str(self._dtype).removeprefix('torch.')} {self._route}"

    def factor(self) -> RFactor:
        """Return the factor of all rows so far; more rows may be added afterwards."""
        if self._sum is None:
            raise ArgumentError("no rows were added; call add() with at least one batch first")
        if 0 < self._largest < self._sum.magnitudes[0]:
            raise DataError(
                f"the largest magnitude is {self._largest:.1e}, too small to square in the "
                "arithmetic of this stream; scale the data up (T does not change)"
            )
        return self._sum.factor(self.rows)

    def state(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Return tensors and text fields from which `from_state` rebuilds the stream."""
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
        """Return a stream that continues exactly where the stream of this `state` stopped."""
        try:
            dtype = None if fields["dtype"] == "None" else getattr(torch, fields["dtype"])
            route: Any = fields["route"]
            stream = cls(int(fields["n"]), route=route, dtype=dtype, device=device)
            stream.rows, stream.batches = int(fields["rows"]), int(fields["batches"])
            if "kind" in fields:
                sum_type, additions = KINDS[fields["kind"]], int(fields["additions"])
                stream._sum = sum_type.restored(tensors, stream.n, additions)
                stream._largest = float(fields["largest"])
                if stream.route != sum_type.route:
                    raise ValueError(f"route={stream.route!r} with kind={sum_type.kind!r}")
        except (KeyError, ValueError, AttributeError, TypeError) as error:
            raise DataError(f"the stream state has a missing or invalid entry: {error}") from error
        if (stream._sum is None) != (stream.rows == 0) or min(stream.rows, stream.batches) < 0:
            raise DataError(
                f"the stream state contradicts itself: it counts {stream.rows} rows in "
                f"{stream.batches} batches"
            )
        if stream._sum is not None and stream._device is not None:
            stream._sum = stream._sum.to(stream._device)
        return stream

    def _empty_sum(self, batch: Tensor) -> RowSum:
        """Return an empty sum of the kind that suits the first batch."""
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
        sum_type = TsqrSum if dtype == torch.float64 else SinglePrecisionTsqrSum
        return sum_type.empty(self.n, device)

    def _chunks(
        self, batch: Tensor, dim: int, target: RowSum, magnitudes: list[float]
    ) -> Iterator[Tensor]:
        """Yield copies of the rows in the dtype of `target`; append the magnitude of each chunk."""
        for rows in _row_chunks(batch.detach().movedim(dim, -1), target.rows_per_update):
            # a copy, because the caller may change the batch later
            chunk = rows.to(target.row_device, target.dtype, copy=True)
            largest = largest_magnitude(rows if rows.element_size() >= 4 else chunk)
            if not largest <= target.magnitudes[1]:
                raise self._bad_batch_error(batch, dim, target.rows_per_update)
            magnitudes.append(largest)
            yield chunk

    def _bad_batch_error(self, batch: Tensor, dim: int, limit: int) -> DataError:
        """Return an error that names the first NaN or Inf, or the largest magnitude."""
        bad_count, row_count, largest, first = 0, 0, 0.0, ""
        for rows in _row_chunks(batch.detach().movedim(dim, -1), limit):
            rows = rows.double() if has_float64(rows.device) else rows.cpu().double()
            is_bad = ~rows.isfinite()
            bad_rows = is_bad.any(dim=1).nonzero()[:, 0]
            if len(bad_rows) and not first:
                row = int(bad_rows[0])
                channel = int(is_bad[row].nonzero()[0, 0])
                first = f"row {row_count + row}, channel {channel} is {float(rows[row, channel])}"
            bad_count, row_count = bad_count + len(bad_rows), row_count + len(rows)
            largest = max(largest, float(rows.abs().max()))
        unchanged = f"the {self.rows} rows added before are kept"
        if not bad_count:
            return DataError(
                f"batch {self.batches + 1} holds a magnitude of {largest:.1e}, too large to square "
                f"in the arithmetic of this stream; {unchanged}. Scale the data down (T does not "
                "change)"
            )
        return DataError(
            f"batch {self.batches + 1}: {bad_count} of its {row_count} rows hold NaN or Inf "
            f"(first: {first}); {unchanged}. Drop or repair these examples, or run the model in "
            "float32 if half precision overflows"
        )

    def __repr__(self) -> str:
        return f"FactorStream(n={self.n}, rows={self.rows}, route={self.route!r})"


def _row_chunks(batch: Tensor, limit: int) -> Iterator[Tensor]:
    """Split (..., n) into matrices of at most `limit` rows without copying the whole batch."""
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
    """Raise unless `batch` is a dense, non-empty float tensor with n channels at `dim`."""
    if not isinstance(batch, Tensor):
        raise ArgumentError(f"got a {type(batch).__name__}; pass a torch.Tensor of rows")
    if batch.layout != torch.strided or batch.is_meta:
        raise ArgumentError(
            f"got a {batch.layout} tensor on {batch.device}; pass a dense tensor that holds data"
        )
    if not batch.is_floating_point():
        raise ArgumentError(f"the rows have dtype {batch.dtype}; convert them to a float dtype")
    if not is_whole(dim) or not -batch.ndim <= dim < batch.ndim:
        raise ArgumentError(
            f"dim={dim} for a tensor of shape {tuple(batch.shape)}; choose an existing dimension"
        )
    if batch.shape[dim] != n:
        raise ArgumentError(
            f"dimension {dim} of shape {tuple(batch.shape)} has {batch.shape[dim]} channels, but "
            f"this stream has {n}; name the channel dimension with dim="
        )
    if batch.numel() == 0:
        raise ArgumentError(
            f"the batch is empty, shape {tuple(batch.shape)}; pass at least one row"
        )
