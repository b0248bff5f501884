"""Solve a layer with very many outputs in parts, such as the vocabulary of a language model.

Outputs share the inputs, and nothing else but the choice of the ridge. So a part of them can be
solved by itself, which bounds the memory. Layers with fewer outputs are solved as one part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interpress.graph.activations import Activation
from interpress.refit.regression import Regression, Solution

_NUMBERS = 2**27  # rows times outputs of one part: 512 MiB in single precision
_FEWEST = 1024  # outputs of a part


@dataclass(frozen=True, eq=False)
class OutputChunks:
    """The rows of one dense layer, batch by batch; arguments as for `Regression`."""

    inputs: Sequence[Tensor]
    targets: Sequence[Tensor]
    offsets: Sequence[Tensor]
    scale: Tensor | None
    activation: Activation | None
    shifts: bool
    weights: Tensor | None
    kernel: int = 1

    def solve(self, W0: Tensor, bias: Tensor | None) -> Solution:
        """Return the change of `W0` and bias; errors are summed over the parts."""
        rows = sum(map(len, self.targets))
        outputs = max(_FEWEST, _NUMBERS // max(rows, 1))
        if len(W0) <= outputs or self.inputs[0].shape[1] > 1:  # groups have their own inputs
            return self._part(slice(None)).solve(W0, bias)
        parts = []
        for start in range(0, len(W0), outputs):
            chosen = slice(start, start + outputs)
            part_bias = None if bias is None else bias[chosen]
            parts.append(self._part(chosen).solve(W0[chosen], part_bias))
        changed = any(part.change is not None for part in parts)
        changes = [
            W0.new_zeros(len(part.shift), W0.shape[1]) if part.change is None else part.change
            for part in parts
        ]
        return Solution(
            torch.cat(changes) if changed else None,
            torch.cat([part.shift for part in parts]),
            sum(part.before for part in parts),
            sum(part.after for part in parts),
            max(part.ridge for part in parts),
        )

    def _part(self, chosen: slice) -> Regression:
        """Return the regression of some outputs."""
        return Regression(
            self.inputs,
            torch.cat([target[:, chosen] for target in self.targets]),
            torch.cat([offset[:, chosen] for offset in self.offsets]),
            scale=None if self.scale is None else self.scale[chosen],
            activation=self.activation,
            shifts=self.shifts,
            weights=self.weights,
            kernel=self.kernel,
        )
