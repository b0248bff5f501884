"""How far one output of two networks is apart, added up over batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from interpress.errors import DataError

MEAN_GIVES_ONE = "1 is what predicting the mean gives"
"""Said beside every relative error."""
_CONSTANT = 1e-12  # variance relative to the mean square that rounding alone can cause


class RelativeError:
    """Root-mean-square difference, relative to the standard deviation of the first output.

    Predicting the mean gives 1. An output that never varies is compared relative to its size.
    """

    def __init__(self) -> None:
        # By shape of one row: how many rows; squared differences, squares and sums over the rows.
        self._sums: dict[tuple[int, ...], tuple[int, list[Tensor]]] = {}

    def add(self, first: Tensor, second: Tensor) -> None:
        """Add rows (rows, ...) of both outputs."""
        x, y = first.double(), second.double()
        sums = [(x - y).square().sum(0), x.square().sum(0), x.sum(0)]
        shape = tuple(x.shape[1:])
        count, before = self._sums.get(shape, (0, [torch.zeros_like(part) for part in sums]))
        totals = [p + q for p, q in zip(before, sums, strict=True)]
        self._sums[shape] = count + len(x), totals

    def value(self) -> float:
        """Return the error over all rows."""
        count, (difference, square, total) = self._combined()
        if count == 0:
            return 0.0
        apart, size = float(difference.sum()), float(square.sum())
        spread = float(square.sum() - (total.square() / count).sum())
        if spread <= _CONSTANT * size:
            spread = size
        return math.sqrt(apart / spread) if spread > 0 else apart

    def _combined(self) -> tuple[int, list[Tensor]]:
        """Return count and sums over all batches.

        Batches of different lengths have rows of different shapes. Dims that differ are summed, and
        every position counts as a row.
        """
        if not self._sums:
            return 0, [torch.zeros(())] * 3
        if len(self._sums) == 1:
            return next(iter(self._sums.values()))
        dims = min(map(len, self._sums))
        sizes = [shape[len(shape) - dims :] for shape in self._sums]
        varying = [dim for dim in range(dims) if len({size[dim] for size in sizes}) > 1]
        count, totals = 0, [torch.zeros((), dtype=torch.float64)] * 3
        for shape, (rows, sums) in self._sums.items():
            extra = len(shape) - dims
            reduced = [*range(extra), *(extra + dim for dim in varying)]
            count += rows * math.prod(shape[dim] for dim in reduced)
            parts = [part.sum(reduced) if reduced else part for part in sums]
            totals = [p + q for p, q in zip(totals, parts, strict=True)]
        return count, totals


@dataclass(frozen=True)
class OtherOutput:
    """An output that does not decide, and how far the two networks are apart in it."""

    name: str
    error: float | None
    """Of a floating-point output: root-mean-square difference relative to its standard deviation.
    Predicting the mean gives 1."""
    equal: float | None = None
    """Of integers or booleans: the fraction of entries that are the same."""

    @property
    def loss(self) -> float:
        """The error, or the fraction of entries that differ."""
        if self.error is not None:
            return self.error
        return 0.0 if self.equal is None else 1.0 - self.equal

    def record(self) -> dict[str, Any]:
        """Return it as it is written to JSON, which has no infinite numbers."""
        finite = self.error is not None and math.isfinite(self.error)
        return {"name": self.name, "error": self.error if finite else None, "equal": self.equal}


class OtherTally:
    """Adds up batches of one output that does not decide."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._error = RelativeError()
        self._is_float = True
        self._equal = self._entries = 0

    def add(self, first: Tensor, second: Tensor, mask: Tensor | None = None) -> None:
        """Add one batch; where a mask fits the output's first dims, it says what counts."""
        if first.shape != second.shape:
            raise DataError(
                f"the networks' outputs {self._name!r} have shapes {tuple(first.shape)} and "
                f"{tuple(second.shape)}; compare networks with the same outputs"
            )
        first, second = _real(first.detach().cpu()), _real(second.detach().cpu())
        if mask is not None and mask.shape == first.shape[: mask.ndim]:
            counted = mask.cpu().bool()
            first, second = first[counted], second[counted]
        if first.ndim == 0:  # one number for the whole batch
            first, second = first[None], second[None]
        self._is_float = first.is_floating_point()
        if not self._is_float:
            self._equal += int((first == second).sum())
            self._entries += first.numel()
            return
        same = (first == second) | (first.isnan() & second.isnan())
        special = same & ~first.isfinite()  # such as a mask of -inf, whose difference would be NaN
        self._error.add(*(torch.where(special, 0.0, output) for output in (first, second)))

    def result(self) -> OtherOutput:
        """Return the comparison over all batches."""
        if not self._is_float:
            return OtherOutput(self._name, None, self._equal / max(1, self._entries))
        error = self._error.value()
        return OtherOutput(self._name, math.inf if math.isnan(error) else error)


def _real(output: Tensor) -> Tensor:
    return torch.view_as_real(output) if output.is_complex() else output
