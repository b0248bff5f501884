"""The best approximation of a dense layer by two thin ones: PCA of its outputs.

A layer gives `y = W x + b`. `D` is the diagonal of `scales`, which say how much an error in each
output counts (the factors of the batch norm that follows). `C` is the covariance of `D y`, and the
columns of `P` are its r leading eigenvectors. Then the outputs are approximated by

    D y ~= mean + P @ P.T @ (D y - mean)

which is the best approximation of rank r. The layer becomes `A @ B` with `A = D^-1 @ P` and
`B = P.T @ D @ W`. What the mean needs goes into the bias. This equals the whitened SVD of `D W`:
with `S` the covariance of the inputs, `C = D W S W.T D`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_SMALLEST_SCALE = 1e-3
"""Lower bound of a scale, relative to the mean of all. An output below it is practically constant;
dividing by its scale would amplify rounding."""


@dataclass(frozen=True, eq=False)
class Factors:
    """Two matrices whose product approximates the matrix of a layer."""

    A: Tensor
    """(outputs, rank)"""
    B: Tensor
    """(rank, inputs)"""

    @property
    def rank(self) -> int:
        """The number of values between the two layers."""
        return len(self.B)

    def product(self) -> Tensor:
        """Return `A @ B` (outputs, inputs), computed in double precision where the device can."""
        if self.A.device.type == "mps":
            return self.A @ self.B
        return (self.A.double() @ self.B.double()).to(self.A)


def usable_scales(scales: Tensor) -> Tensor:
    """Return positive scales, bounded from below so that they can be divided by."""
    sizes = scales.abs()
    smallest = (_SMALLEST_SCALE * sizes.mean()).clamp(min=torch.finfo(sizes.dtype).tiny)
    return sizes.clamp(min=float(smallest))


def principal_components(C: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues (n,) of a covariance, largest first, and eigenvectors (n, n)."""
    values, vectors = torch.linalg.eigh(C)
    return values.flip(0).clamp(min=0), vectors.flip(1)


def factors_of(W: Tensor, C: Tensor, scales: Tensor, rank: int) -> Factors:
    """Return the factors of a layer, given the covariance `C` of its scaled outputs.

    `W` is (outputs, inputs), `C` (outputs, outputs), `scales` (outputs,). Computed in the dtype
    of `C`, returned in that of `W`.
    """
    _, vectors = principal_components(C)
    P = vectors[:, :rank]  # (outputs, rank)
    D = scales.to(P)[:, None]
    return Factors((P / D).to(W), (P.T @ (D * W.to(P))).to(W))


def discarded_energies(first: Tensor, second: Tensor) -> Tensor:
    """Return (n + 1,): the share of the outputs' energy that is lost at every rank, out of sample.

    `first` and `second` are the covariances of two halves of the rows. The components of one half
    are applied to the other, and both results are averaged.
    """
    lost = []
    for fitted, judged in ((first, second), (second, first)):
        _, P = principal_components(fitted)
        kept = ((judged @ P) * P).sum(0).cumsum(0)  # energy along the first r components
        total = judged.diagonal().sum().clamp(min=torch.finfo(judged.dtype).tiny)
        shares = 1 - torch.cat([kept.new_zeros(1), kept]) / total
        lost.append(shares.clamp(min=0))
    mean = (lost[0] + lost[1]) / 2
    mean[-1] = 0.0
    return mean
