"""How strongly the predicted probabilities react to an error at a tap.

Let `e` be an error of a consumer's output at one position, and `g` the gradient of
`sum(log p(y))` with respect to that output, for tokens `y` drawn from the model's own predictions.
For small errors, the KL divergence between the predictions without and with the error is

    KL  ~=  1/2 * E[(e @ g)**2]  =  1/2 * e @ M @ e,        M = E[g g.T]

`M` is the Fisher information. It needs no labels. Errors at different positions and in different
layers are taken to be independent. A consumer whose output becomes part of a residual stream is
measured relative to the size of the stream, because a norm divides by it: `e` is then divided by
the size of its row, and `g` multiplied by it.

Gradients differ between positions, and so do errors. Rows of a size class (see `row_weights`) count
as much as their gradients say, and `M` is a mean in which all classes are scaled alike:

    KL  ~=  mean over rows of  weight * 1/2 * e @ M @ e

Where a consumer's output is small, its error is small. So this mean is weighted by the squared
output, relative to the stream: a position that reacts strongly, but at which the layer does nearly
nothing, does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from interpress.calibration.row_weights import ClassSums, RowWeights
from interpress.linalg.precision import exact_dtype
from interpress.spaces.taps import Tap

_ROWS = 8192
"""Positions that are enough, or eight per channel if that is more. Longer texts need fewer."""
LARGEST = 2048
"""Channels up to which second moments are summed. Of more channels, a random projection of all
gradients onto this many rows is kept, whose second moments are right on average."""


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """The second moments of the gradients at one tap."""

    root: Tensor
    """(m, channels): `root.T @ root` is the weighted mean of `g g.T` over positions."""
    rows: int
    """Positions that were measured."""
    of_consumer: bool
    """Whether these are gradients of the consumer's output, relative to the size of its row.
    Otherwise they are gradients of the tap's own columns."""
    row_weights: RowWeights | None = None
    """How much rows count by their size, if they are relative to it."""

    def metric(self, device: torch.device | None = None) -> Tensor:
        """Return `M / 2` on a device, in its most precise type.

        Few rows determine some directions of `M` badly, so it is shrunk towards a multiple of the
        identity, with the weight of one row per channel.
        """
        device = device or self.root.device
        root = self.root.to(device, exact_dtype(device))
        M, channels = root.T @ root, self.root.shape[1]
        share = channels / (channels + self.rows)
        mean = M.diagonal().mean().clamp(min=1e-30)
        M.mul_(1 - share).diagonal().add_(share * mean)
        return M.div_(2)


def row_weights_of(sensitivities: Mapping[str, Sensitivity]) -> dict[str, RowWeights]:
    """Return, per tap, how much its rows count by their size, where that is known."""
    weights = {name: one.row_weights for name, one in sensitivities.items()}
    return {name: one for name, one in weights.items() if one is not None}


class GradientSum:
    """Sums `g g.T` over the positions of all batches."""

    def __init__(self, tap: Tap, of_consumer: bool) -> None:
        self.tap, self.of_consumer = tap, of_consumer
        self._sum: Tensor | None = None
        self._rows = 0
        self._weight = 0.0
        self._classes: ClassSums | None = None

    def add(
        self, gradients: Tensor, values: Tensor, scale: Tensor | None, generator: torch.Generator
    ) -> None:
        """Add gradients (rows, channels), weighted by the values that they belong to.

        `scale` (rows, 1) is one over the size that values are relative to.
        """
        rows, channels = gradients.shape
        sizes = values.float().square().sum(1, keepdim=True)
        gradients = gradients.float()
        roots = sizes.sqrt()  # the scales of gradient and weight cancel
        if scale is not None:
            self._classes = self._classes or ClassSums()
            squares = (gradients / scale).square().sum(1)
            roots = roots / self._classes.add(squares, scale)[:, None].sqrt()
        gradients = gradients * roots
        self._rows += rows
        self._weight += float((sizes if scale is None else sizes * scale.square()).sum())
        if channels <= LARGEST:
            part = gradients.T @ gradients
        else:
            signs = torch.randint(2, (LARGEST, rows), generator=generator).mul_(2).sub_(1)
            part = signs.to(gradients) @ gradients / LARGEST**0.5
        part = part.cpu()
        self._sum = part if self._sum is None else self._sum + part

    @property
    def is_enough(self) -> bool:
        """Whether more positions would change little."""
        return self._sum is not None and self._rows >= max(_ROWS, 8 * self._sum.shape[1])

    def result(self) -> Sensitivity | None:
        """Return the mean over all positions; None if no gradient reached this tap."""
        if self._sum is None or not bool(self._sum.isfinite().all()):
            return None
        weight, row_weights = max(self._weight, 1e-30), None
        if self._classes is not None:
            weight, row_weights = weight / self._classes.usual, self._classes.weights()
        if self._sum.shape[1] > LARGEST:
            root = self._sum / weight**0.5
        else:
            values, vectors = torch.linalg.eigh(self._sum.double() / weight)
            root = (vectors * values.clamp(min=0).sqrt()).T.float().contiguous()
        return Sensitivity(root, self._rows, self.of_consumer, row_weights)
