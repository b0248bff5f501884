"""Rows for the regression of one layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


class LayerRows(NamedTuple):
    """Rows of one batch for the regression of one layer."""

    X: Tensor
    """Inputs of the smaller layer."""
    target: Tensor
    """What its output should become: the full network's value."""
    offset: Tensor
    """What is added to its output (a single row if it is the same for all)."""
    weights: Tensor | None
    """Sample weights; None if all are equal."""

    def only(self, counts: Tensor | None) -> LayerRows:
        """Return the rows that count."""
        if counts is None:
            return self
        index = counts.to(self.X.device)
        offset = self.offset if len(self.offset) == 1 else self.offset[index]
        weights = None if self.weights is None else self.weights[counts]
        return LayerRows(self.X[index], self.target[index], offset, weights)


class FullRows(NamedTuple):
    """Rows of the full network at a layer."""

    output: Tensor
    """(rows, outputs), after the batch norm if there is one."""
    summand: Tensor | None
    """(rows, outputs) of what is added to them; None if it is not known."""


@dataclass(frozen=True, eq=False)
class LayerSample:
    """Sampled inputs of one batch at a layer of the smaller network."""

    at: Tensor | None
    """Sampled positions; None for all."""
    X: Tensor
    summand: Tensor | None
    weights: Tensor | None
    counts: Tensor | None
    """Which of these rows count; None if all do."""
