"""Sampled outputs of the original's dense layers, recorded while it is calibrated.

The refit solves every layer towards what the original gives at some rows. Recording these rows in
the calibration pass spares a second run of the original.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from interpress.graph.dense import DenseLayer, dense_layer_of, uses_of_weights
from interpress.graph.executor import Kernel
from interpress.graph.patterns import Epilogue, epilogue_of
from interpress.graph.program import Program, fixed_size
from interpress.graph.rows import BatchRows


class RecordedRows(NamedTuple):
    """Rows of one layer and one batch."""

    at: Tensor | None
    """The positions of the rows, as `DenseLayer.positions` returns them; None for all."""
    output: Tensor
    """(rows, outputs), after the batch norm if there is one."""
    summand: Tensor | None
    """(rows, outputs) of the value that is added; None if it is not known by then."""
    length: int
    """The positions of every example, of which these are some."""


class _Layer(NamedTuple):
    dense: DenseLayer
    epilogue: Epilogue
    per_example: int


class LayerOutputs:
    """Rows of all layers and batches; nothing is kept once they would take too many bytes."""

    def __init__(
        self,
        program: Program,
        per_example: Callable[[DenseLayer], int],
        most_bytes: int,
    ) -> None:
        """Prepare to record at most `most_bytes`, and `per_example` rows of a layer and example."""
        self.sizes: list[int] = []
        """The number of examples of every batch."""
        self.usable = True
        self._most, self._bytes = most_bytes, 0
        self._layers: dict[fx.Node, _Layer] = {}
        self._rows: dict[fx.Node, list[RecordedRows]] = {}
        self._waiting: dict[fx.Node, Tensor] = {}
        self._program = program
        parameters, uses = program.parameters(), uses_of_weights(program)
        for node in program.operators():
            dense = dense_layer_of(program, node, parameters)
            if dense is not None and uses[dense.weight] == 1:
                epilogue = epilogue_of(program, node, parameters)
                self._layers[node] = _Layer(dense, epilogue, per_example(dense))
                self._rows[node] = []
        self._last_reader = {
            layer.epilogue.summand: node
            for node, layer in self._layers.items()
            if layer.epilogue.summand is not None
        }

    def begin(self, batch: BatchRows, kernels: Mapping[fx.Node, Kernel]) -> None:
        """Begin a batch, which runs with these kernels.

        Nothing is recorded if a mask excludes some rows.
        """
        self._batch, self._kernels = batch, kernels
        self.sizes.append(batch.examples)
        if batch.masks or batch.alone:
            self.release()

    def after(self, node: fx.Node, value: Any) -> None:
        """Record rows of a dense layer's output, and of what is added to it."""
        if not self.usable or not isinstance(value, Tensor):
            return
        if node in self._last_reader:
            self._waiting[node] = value
        if (layer := self._layers.get(node)) is not None:
            self._record(node, layer, value)

    def _record(self, node: fx.Node, layer: _Layer, value: Tensor) -> None:
        dense, epilogue = layer.dense, layer.epilogue
        first = node.meta["val"].shape[0]
        is_batch = fixed_size(first) is None and first.node.expr in self._program.batch_symbols
        if not is_batch or len(value) != self._batch.examples:
            self.release()  # rows of one example could not be told from those of another
            return
        at = dense.output_positions(value, layer.per_example, self._batch)
        output, summand = _rows(dense, value, at), None
        if epilogue.norm is not None and epilogue.norm.node not in self._kernels:
            output = epilogue.norm.applied(output)
        if epilogue.summand is not None:
            added = self._waiting.get(epilogue.summand)
            if self._last_reader[epilogue.summand] is node:
                self._waiting.pop(epilogue.summand, None)
            if added is not None and added.shape == value.shape:
                summand = _rows(dense, added, at)
        channels = value.shape[1] if dense.spatial else value.shape[-1]
        length = value.numel() // (len(value) * channels)
        self._rows[node].append(RecordedRows(at, output, summand, length))
        self._bytes += output.nbytes + (0 if summand is None else summand.nbytes)
        if self._bytes > self._most:
            self.release()

    def release(self) -> None:
        """Forget all rows, and record no more."""
        self.usable = False
        self._rows.clear()
        self._waiting.clear()

    def rows(self, node: fx.Node, batch: int, chosen: Tensor) -> RecordedRows:
        """Return the rows of a layer for some examples of a batch, by ascending indices in it."""
        recorded, size = self._rows[node][batch], self.sizes[batch]
        if len(chosen) == size:
            return recorded

        def select(values: Tensor) -> Tensor:
            by_example = values.unflatten(0, (size, -1))
            return by_example.index_select(0, chosen.to(values.device)).flatten(0, 1)

        at = recorded.at
        if at is not None and not self._layers[node].dense.spatial:  # rows of the whole batch
            start = recorded.length * torch.arange(size)
            within = at.unflatten(0, (size, -1)) - start[:, None]
            at = (within[chosen] + start[: len(chosen), None]).reshape(-1)
        summand = None if recorded.summand is None else select(recorded.summand)
        return RecordedRows(at, select(recorded.output), summand, recorded.length)


def _rows(dense: DenseLayer, value: Tensor, at: Tensor | None) -> Tensor:
    """Return a copy of some rows, because a later operator may overwrite the value."""
    rows = dense.outputs(value, at)
    return rows.clone() if at is None else rows


@dataclass(frozen=True, eq=False)
class ChosenOutputs:
    """What was recorded, for some examples of every batch."""

    outputs: LayerOutputs
    batches: Sequence[int]
    """The numbers of the batches of which examples were chosen."""
    chosen: Sequence[Tensor]
    """Their indices in each of these batches, ascending."""

    def rows(self, node: fx.Node, batch: int) -> RecordedRows:
        """Return the rows of a layer for the chosen examples of a batch."""
        return self.outputs.rows(node, self.batches[batch], self.chosen[batch])
