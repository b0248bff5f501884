"""The squared error of a layer's output after its activation, and the step that lowers it."""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.graph.activations import Activation
from interpress.refit.normal_equations import weighted

_FLAT = 1e-6  # difference of two inputs below which their slope is not computed


class ActivationLoss:
    """`||f(z) - f(target)||`, summed over (groups, rows, outputs) with sample weights of rows.

    For an activation that is constant outside of two bounds, like ReLU, the step goes to the
    nearest `z` where the loss vanishes. For others, such as SiLU, it is `target - z` weighted by
    the squared slope between the two, relative to the largest slope. Both majorise the loss.
    """

    def __init__(
        self,
        target: Tensor,
        activation: Activation | None,
        alive: Tensor | None,
        weights: Tensor | None,
    ) -> None:
        self.activation, self._alive, self._weights = activation, alive, weights
        self._goal = target if activation is None else activation.apply(target)
        self._ceiling = self._floor = None
        self._target = target
        if activation is not None and activation.bounds is not None:
            low, high = activation.bounds
            self._target = target.clamp(low, high)
            # beyond a bound of the target, a step further beyond it is not needed
            self._ceiling = torch.where(target > low, torch.inf, 0.0)
            if high < torch.inf and bool((target >= high).any()):
                self._floor = torch.where(target < high, -torch.inf, 0.0)

    def __call__(self, z: Tensor, rows: slice) -> float:
        """Return the loss of some rows."""
        difference = self._values(z) - self._goal[:, rows]
        if self._alive is not None:
            difference.mul_(self._alive)
        weights = None if self._weights is None else self._weights[rows]
        return float(weighted(difference.square_(), weights).sum(dtype=torch.float64))

    def step(self, z: Tensor, rows: slice) -> Tensor:
        """Return how far each `z` should move."""
        step = self._target[:, rows] - z
        if self._ceiling is not None:
            torch.minimum(step, self._ceiling[:, rows], out=step)
            if self._floor is not None:
                torch.maximum(step, self._floor[:, rows], out=step)
        elif self.activation is not None:
            slope = (self._goal[:, rows] - self._values(z)) / step
            slope = torch.where(step.abs() < _FLAT, 1.0, slope).square_()
            step.mul_(slope.clamp_(max=1.0))
        return step if self._alive is None else step.mul_(self._alive)

    def rounding(self, rows: slice) -> float:
        """Return the loss that rounding alone explains."""
        energy = float(self._goal[:, rows].square().sum(dtype=torch.float64))
        return (4 * torch.finfo(self._goal.dtype).eps) ** 2 * energy

    def _values(self, z: Tensor) -> Tensor:
        return z.clone() if self.activation is None else self.activation.apply(z)
