"""A new gain and shift of every output, from sums over rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from interpress.refit.normal_equations import weighted

_CONSTANT = 1e-30  # variance below which an output has no gain
_GAINS = (-0.9, 9.0)  # relative changes of a gain: an output is neither turned over nor exploded


@dataclass(frozen=True)
class Affine:
    """A relative change of every output's gain, and a shift: (groups, 1, outputs)."""

    gain: Tensor
    shift: Tensor

    def applied(self, z: Tensor, offset: Tensor) -> Tensor:
        """Return outputs `z` (groups, rows, outputs), of which `offset` is left as it is."""
        if offset.shape[1] == 1:
            return torch.addcmul(self.shift - self.gain * offset, z, 1 + self.gain)
        return torch.addcmul(z, z - offset, self.gain).add_(self.shift)


@dataclass(frozen=True)
class AffineSums:
    """Sums over (weighted) rows of what outputs contribute, and of the steps they should take.

    All but `count` and `centre` are (groups, 1, outputs).
    """

    count: float
    centre: Tensor | None
    """Subtracted from what outputs contribute, so that no digits cancel; None without a shift."""
    step: Tensor
    own: Tensor
    square: Tensor
    product: Tensor

    @classmethod
    def of(
        cls, own: Tensor, step: Tensor, weights: Tensor | None, centre: Tensor | None
    ) -> AffineSums:
        """Return the sums of some rows; `own` and `step` are overwritten."""
        own = own if centre is None else own.sub_(centre)
        count = float(own.shape[1]) if weights is None else float(weights.sum())
        counted = own if weights is None else own * weights
        step = weighted(step, weights)
        return cls(
            count,
            centre,
            step.sum(1, keepdim=True),
            counted.sum(1, keepdim=True),
            (counted * own).sum(1, keepdim=True),
            step.mul_(own).sum(1, keepdim=True),
        )

    def plus(self, other: AffineSums) -> AffineSums:
        """Return the sums of these and of more rows, about the same centre."""
        return AffineSums(
            self.count + other.count,
            self.centre,
            self.step + other.step,
            self.own + other.own,
            self.square + other.square,
            self.product + other.product,
        )

    def best(self, *, gains: bool) -> Affine:
        """Return the least-squares gain and shift; without `gains`, only a shift."""
        zero = torch.zeros_like(self.step)
        shifts = self.centre is not None
        mean_step = self.step / self.count if shifts else zero
        if not gains:
            return Affine(zero, mean_step)
        mean_own = self.own / self.count if shifts else zero
        variance = self.square / self.count - mean_own.square()
        gain = (self.product / self.count - mean_own * mean_step) / variance.clamp(min=_CONSTANT)
        gain = torch.where(variance > _CONSTANT, gain.clamp(*_GAINS), 0.0)
        if self.centre is None:
            return Affine(gain, zero)
        return Affine(gain, mean_step - gain * (mean_own + self.centre))
