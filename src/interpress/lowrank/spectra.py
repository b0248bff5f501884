"""Moments of the outputs of every layer, and what a rank is predicted to lose.

The loss of a rank is the energy of the outputs that it discards, relative to how much the outputs
vary: after the batch norm and, where there is one, the residual sum. That is the unit in which the
loss of dropping channels is predicted. It is measured on examples that the components were not
computed from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from interpress.data.batches import batch_size
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.program import Program
from interpress.graph.rows import BatchRows
from interpress.linalg.low_rank import discarded_energies, usable_scales
from interpress.linalg.precision import exact_dtype
from interpress.lowrank.layers import FactorableLayer

_ROWS_PER_EXAMPLE = 64  # further positions of an example are highly correlated


@dataclass(eq=False)
class OutputMoments:
    """Moments of a layer's outputs, per half of the examples, in double precision."""

    gram: Tensor
    """(2, outputs, outputs)"""
    total: Tensor
    """(2, outputs)"""
    count: list[int]
    """Rows of each half."""
    sums: Tensor
    """(3, outputs): count, sum and sum of squares of what the outputs become in the end."""

    @classmethod
    def empty(cls, outputs: int, device: torch.device) -> OutputMoments:
        """Return the moments of no rows."""

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=exact_dtype(device), device=device)

        return cls(zeros(2, outputs, outputs), zeros(2, outputs), [0, 0], zeros(3, outputs))

    def add(self, rows: Tensor, in_second: Tensor) -> None:
        """Add rows (rows, outputs), and say which belong to the second half."""
        for half in (0, 1):
            part = rows[in_second.to(rows.device) == bool(half)].to(self.gram)
            self.gram[half] += part.T @ part
            self.total[half] += part.sum(0)
            self.count[half] += len(part)

    def add_final(self, rows: Tensor) -> None:
        """Add rows (rows, outputs) of the value that the outputs become."""
        values = rows.to(self.sums)
        self.sums += torch.stack([torch.ones_like(values), values, values.square()]).sum(1)

    def mean(self) -> Tensor:
        """Return (outputs,): the mean of the outputs."""
        return self.total.sum(0) / max(sum(self.count), 1)

    def variances(self) -> Tensor:
        """Return (outputs,): how much the values vary that the outputs become."""
        count, total, squares = self.sums
        mean = total / count.clamp(min=1)
        return (squares / count.clamp(min=1) - mean.square()).clamp(min=0)

    def covariance(self, half: int | None, *, centred: bool) -> Tensor:
        """Return (outputs, outputs) of one half or of all rows, about the mean or about zero."""
        gram = self.gram.sum(0) if half is None else self.gram[half]
        count = sum(self.count) if half is None else self.count[half]
        second = gram / max(count, 1)
        mean = self.mean()
        if not centred:
            return second
        total = self.total.sum(0) if half is None else self.total[half]
        cross = torch.outer(total / max(count, 1), mean)
        return second - cross - cross.T + torch.outer(mean, mean)


@dataclass(frozen=True, eq=False)
class Spectra:
    """The factorable layers of a network, with the moments of their outputs."""

    layers: Sequence[FactorableLayer]
    moments: dict[str, OutputMoments]

    def scales(self, layer: FactorableLayer) -> Tensor:
        """Return (outputs,) how much an error in each output counts."""
        norm, moments = layer.epilogue.norm, self.moments[layer.name]
        if norm is None:
            return torch.ones_like(moments.total[0])
        return usable_scales(norm.scale).to(moments.total)

    def covariance(self, layer: FactorableLayer, kept: Tensor, half: int | None = None) -> Tensor:
        """Return the covariance of the scaled outputs that are kept."""
        C = self.moments[layer.name].covariance(half, centred=layer.shifts)
        D, index = self.scales(layer), kept.to(C.device)
        return (D[:, None] * C * D)[index][:, index]

    def losses(self, layer: FactorableLayer, kept: Tensor) -> Tensor:
        """Return (outputs + 1,): the predicted loss of every rank, if only some outputs are kept.

        It never increases with the rank, and is zero from the number of kept outputs on.
        """
        moments = self.moments[layer.name]
        loss = torch.zeros(layer.dense.shape[0] + 1, dtype=torch.float64)
        both = min(moments.count) > 0
        halves = [self.covariance(layer, kept, half if both else None) for half in (0, 1)]
        energy = (halves[0].diagonal().sum() + halves[1].diagonal().sum()) / 2
        varies = moments.variances()[kept.to(energy.device)].sum()
        if not bool(varies > 0):
            return loss
        relative = discarded_energies(*halves) * (energy / varies)
        relative = relative.flip(0).cummax(0).values.flip(0)
        loss[: len(relative)] = relative.cpu()
        return loss


def measure_spectra(
    program: Program,
    layers: Sequence[FactorableLayer],
    examples: Iterable[Example],
    *,
    seed: int = 0,
    alone: bool = False,
) -> Spectra:
    """Run the original network on examples and return the moments of its layers' outputs.

    `alone` says that there is only one example in all, so that halves are halves of it.
    """
    moments = {
        layer.name: OutputMoments.empty(layer.dense.shape[0], program.device) for layer in layers
    }
    outputs_at = {layer.node: layer for layer in layers}
    final_at = {layer.epilogue.last: layer for layer in layers}
    executor, start = Executor(program), 0
    for example in examples:
        batch = BatchRows(batch_size(example), start, example.masks, seed, alone)
        start += batch.examples

        def after(node: fx.Node, value: Any, batch: BatchRows = batch) -> None:
            if (layer := outputs_at.get(node)) is not None:
                rows, in_second = _rows(layer, value, batch)
                moments[layer.name].add(rows, in_second)
            if (layer := final_at.get(node)) is not None:
                moments[layer.name].add_final(_rows(layer, value, batch)[0])

        executor.run(example, after=after)
    return Spectra(layers, moments)


def _rows(layer: FactorableLayer, value: Tensor, batch: BatchRows) -> tuple[Tensor, Tensor]:
    """Return sampled rows (rows, outputs), and which belong to the second half of the examples."""
    rows = layer.dense.outputs(value, None)
    at = batch.sample(len(rows), _ROWS_PER_EXAMPLE)
    in_second = batch.halves(len(rows), at)
    return rows if at is None else rows[at.to(rows.device)], in_second
