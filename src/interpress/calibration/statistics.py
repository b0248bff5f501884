"""The statistics that calibration leaves behind; their size does not depend on the data's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from interpress.calibration.halves import Halves
from interpress.calibration.sample_weights import TopClasses
from interpress.calibration.sensitivity import Sensitivity
from interpress.linalg.factor import RFactor, add_gram, mirror

_EXAMPLES_PER_BATCH = 8  # enough to estimate a variance; more would cost as much as the layer


@dataclass
class PatchMoments:
    """Second moments of the patches that one dense layer reads, per half of the examples."""

    grams: Tensor
    """(2, size, size), upper halves; `mirror` fills the lower ones."""
    totals: Tensor
    """(2, size) sums of the rows."""
    rows: list[int]
    """Rows of each half."""
    origin: Tensor | None = None
    """Subtracted from every row: the mean of the first batch, so that no digits cancel later."""
    basis: Tensor | None = None
    """(channels, kernel, parts) for large kernels: rows are projected onto this basis."""
    dual: Tensor | None = None
    """(channels, kernel, parts): weights that read the rows become weights of the projected rows by
    a product with it; see `patch_directions`."""
    source: Halves | None = None
    """The rows of the tap, if patches are rows of it; `grams` is then empty."""

    @classmethod
    def empty(cls, size: int, dtype: torch.dtype, device: torch.device) -> PatchMoments:
        """Return moments of no rows."""
        return cls(
            torch.zeros(2, size, size, dtype=dtype, device=device),
            torch.zeros(2, size, dtype=torch.float64, device=device),
            [0, 0],
        )

    @classmethod
    def of_rows(cls, halves: Halves) -> PatchMoments:
        """Return the moments of a layer whose patches are the rows of its tap."""
        none = halves.second.new_zeros(2, 0, 0)
        return cls(none, halves.totals, list(halves.rows), source=halves)

    def add(self, X: Tensor, in_second: Tensor) -> None:
        """Add patches (rows, size); `in_second` says which rows are of the second half."""
        if self.basis is not None:
            by_channel = X.reshape(len(X), *self.basis.shape[:2]).permute(1, 2, 0)
            # (channels, parts, rows): products with rows last are twice as fast
            X = torch.bmm(self.basis.mT, by_channel).flatten(0, 1).T
        if self.origin is None:
            self.origin = X.mean(0)
        X = X - self.origin
        for half, members in enumerate((~in_second, in_second)):
            rows = X[members.to(X.device)]
            add_gram(self.grams[half], rows)
            self.totals[half] += rows.sum(0)
            self.rows[half] += len(rows)

    def emptied(self) -> PatchMoments:
        """Return moments of no rows, relative to the same origin and in the same basis."""
        grams, totals = torch.zeros_like(self.grams), torch.zeros_like(self.totals)
        return PatchMoments(grams, totals, [0, 0], self.origin, self.basis, self.dual)

    def merge(self, other: PatchMoments) -> None:
        """Add the rows of other moments with the same origin and basis."""
        self.grams += other.grams.to(self.grams.device)
        self.totals += other.totals.to(self.totals.device)
        self.rows = [a + b for a, b in zip(self.rows, other.rows, strict=True)]

    def moments(self, *, centred: bool, half: int | None = None) -> Tensor:
        """Return the second moments per row of all rows or of one half."""
        chosen = [0, 1] if half is None else [half]
        rows = max(sum(self.rows[i] for i in chosen), 1)
        mean = (self.totals[chosen].sum(0) / rows).to(self.grams.dtype)
        covariance = self._gram(half).div_(rows).addr_(mean, mean, alpha=-1)
        if centred:
            return covariance
        mean = mean if self.origin is None else mean + self.origin
        return covariance.addr_(mean, mean)

    def _gram(self, half: int | None) -> Tensor:
        """Return a new tensor with the Gram matrix of all rows or of one half."""
        if self.source is None:
            grams = self.grams
            return mirror(grams[0] + grams[1] if half is None else grams[half].clone())
        if half == 1:
            return self.source.second.clone()
        first = self.source.factor.G - self.source.second
        return first if half == 0 else first.add_(self.source.second)


@dataclass
class OutputVariance:
    """Variance of the consumer's output after its batch norm and residual sum.

    It is summed over channels.
    """

    square: Tensor | float = 0.0
    total: Tensor | float = 0.0
    rows: int = 0

    def add(self, value: Tensor, channel: int, masks: Sequence[Tensor] = ()) -> None:
        """Add a batch, or the first few of its images; `channel` is the channel dim.

        Positions that do not count are left out, where a mask has one entry per position.
        """
        few = (value if channel == -1 else value[:_EXAMPLES_PER_BATCH]).double()
        for mask in masks:
            if channel == -1 and few.shape[:-1] == mask.shape:
                few = few[mask.to(few.device).bool()]
        other_dims = [dim for dim in range(few.ndim) if dim != channel % few.ndim]
        self.total = self.total + few.sum(other_dims)
        self.square = self.square + few.square().sum(other_dims)
        self.rows += few.numel() // max(few.shape[channel], 1)

    def merge(self, other: OutputVariance) -> None:
        """Add what another one measured of the same output."""
        self.square = self.square + other.square
        self.total = self.total + other.total
        self.rows += other.rows

    @property
    def variance(self) -> float:
        """The sum over channels of their variances."""
        square, total = torch.as_tensor(self.square), torch.as_tensor(self.total)
        if not self.rows:
            return 0.0
        return float((square / self.rows - (total / self.rows).square()).clamp(min=0).sum())


@dataclass(frozen=True, eq=False)
class Statistics:
    """Everything that one calibration pass measured."""

    halves: Mapping[str, Halves] = field(default_factory=dict)
    """Per tap: moments of sampled rows in two halves of the examples."""
    output_variances: Mapping[str, float] = field(default_factory=dict)
    """Per tap with a dense consumer: variance of what the consumer's output becomes, per row."""
    moments: Mapping[str, PatchMoments] = field(default_factory=dict)
    """Per tap with a dense consumer that is small enough: moments of its patches."""
    examples: int = 0
    top_classes: TopClasses | None = None
    """The classes the network predicts per example; None if it does not make one decision each."""
    data: str = ""
    """The fingerprint of the calibration data."""

    sensitivities: Mapping[str, Sensitivity] = field(default_factory=dict)
    """Per tap: how the predicted tokens react to errors there. For language models, all taps have
    one; otherwise none has."""
    by_block: bool = False
    """Whether taps are measured when they are asked for, block by block; see `streamed`."""

    @property
    def factors(self) -> Mapping[str, RFactor]:
        """Per tap: `R.T @ R == Z.T @ Z` over all sampled rows.

        Columns of different groups are orthogonal.
        """
        return _Factors(self.halves)


class _Factors(Mapping[str, RFactor]):
    """The factors of some taps, looked up one at a time."""

    def __init__(self, halves: Mapping[str, Halves]) -> None:
        self._halves = halves

    def __getitem__(self, tap: str) -> RFactor:
        return self._halves[tap].factor

    def __iter__(self) -> Iterator[str]:
        return iter(self._halves)

    def __len__(self) -> int:
        return len(self._halves)
