"""The statistics that calibration leaves behind; their size does not depend on the data's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from interpress.calibration.sample_weights import TopClasses
from interpress.linalg.factor import RFactor, add_gram, mirror

_EXAMPLES_PER_BATCH = 8  # enough to estimate a variance; more would cost as much as the layer


@dataclass
class PatchMoments:
    """Second moments of the patches that one dense layer reads."""

    gram: Tensor
    """Its upper half; `mirror` fills the lower one."""
    total: Tensor
    rows: int
    origin: Tensor | None = None
    """Subtracted from every row: the mean of the first batch, so that no digits cancel later."""
    basis: Tensor | None = None
    """(channels, kernel, parts) for large kernels: rows are projected onto this basis."""

    @classmethod
    def empty(cls, size: int, dtype: torch.dtype, device: torch.device) -> PatchMoments:
        """Return moments of no rows."""
        return cls(
            torch.zeros(size, size, dtype=dtype, device=device),
            torch.zeros(size, dtype=torch.float64, device=device),
            0,
        )

    def add(self, X: Tensor) -> None:
        """Add patches (rows, size)."""
        if self.basis is not None:
            by_channel = X.reshape(len(X), *self.basis.shape[:2])
            X = torch.einsum("rck,ckp->rcp", by_channel, self.basis).flatten(1)
        if self.origin is None:
            self.origin = X.mean(0)
        X = X - self.origin
        add_gram(self.gram, X)
        self.total += X.sum(0)
        self.rows += len(X)

    def centred(self) -> Tensor:
        """Return the Gram matrix of the rows minus their mean."""
        mean = (self.total / max(self.rows, 1)).to(self.gram.dtype)
        return torch.addr(mirror(self.gram), mean, mean, alpha=-self.rows)

    def whole(self) -> Tensor:
        """Return the Gram matrix of the rows themselves."""
        mean = (self.total / max(self.rows, 1)).to(self.gram.dtype)
        if self.origin is not None:
            mean = mean + self.origin
        return torch.addr(self.centred(), mean, mean, alpha=self.rows)


@dataclass
class OutputVariance:
    """Variance of the consumer's output after its batch norm and residual sum.

    It is summed over channels.
    """

    square: Tensor | float = 0.0
    total: Tensor | float = 0.0
    rows: int = 0

    def add(self, value: Tensor, channel: int) -> None:
        """Add the first few examples of a batch; `channel` is the channel dim."""
        few = value[:_EXAMPLES_PER_BATCH].double()
        other_dims = [dim for dim in range(few.ndim) if dim != channel % few.ndim]
        self.total = self.total + few.sum(other_dims)
        self.square = self.square + few.square().sum(other_dims)
        self.rows += few.numel() // few.shape[channel]

    @property
    def variance(self) -> float:
        """The sum over channels of their variances."""
        square, total = torch.as_tensor(self.square), torch.as_tensor(self.total)
        return float((square / self.rows - (total / self.rows).square()).clamp(min=0).sum())


@dataclass(frozen=True, eq=False)
class Statistics:
    """Everything that one calibration pass measured."""

    factors: Mapping[str, RFactor] = field(default_factory=dict)
    """Per tap: `R.T @ R == Z.T @ Z` over sampled rows; columns of different groups orthogonal."""
    output_variances: Mapping[str, float] = field(default_factory=dict)
    """Per tap with a dense consumer: variance of what the consumer's output becomes, per row."""
    moments: Mapping[str, PatchMoments] = field(default_factory=dict)
    """Per tap with a dense consumer that is small enough: moments of its patches."""
    examples: int = 0
    top_classes: TopClasses | None = None
    """The classes the network predicts per example; None if it does not make one decision each."""
    data: str = ""
    """The fingerprint of the calibration data."""
