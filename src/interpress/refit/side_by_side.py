"""Run the full and the smaller network side by side, and refit one layer after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, fx

from interpress.calibration.layer_outputs import ChosenOutputs
from interpress.calibration.row_weights import RowWeights
from interpress.data.batches import batch_size
from interpress.graph.dense import (
    DenseLayer,
    dense_layer_of,
    transposes_of,
    uses_of_weights,
    weight_of,
)
from interpress.graph.example import Example
from interpress.graph.executor import Before, Executor
from interpress.graph.fast_kernels import fast_kernels
from interpress.graph.normalised import inverse_sizes, normalised_value
from interpress.graph.passage import Passage
from interpress.graph.patterns import Epilogue, epilogue_of
from interpress.graph.program import Program
from interpress.graph.rows import BatchRows
from interpress.linalg.low_rank import Factors
from interpress.refit.layer_pair import (
    LayerPair,
    Pairs,
    equal_values,
    has_shape_of,
    kept_outputs,
)
from interpress.refit.layer_rows import FullRows, LayerRows, LayerSample
from interpress.refit.rows_with_target import row_weights, rows_with_target
from interpress.refit.sample_size import sample_size
from interpress.refit.solve_layer import solve_layer, solve_thin_layer
from interpress.refit.thin_layer import ThinLayer
from interpress.surgery.cut import Cut


class SideBySide:
    """Both networks on a list of batches, from one layer to the next."""

    def __init__(
        self,
        cut: Cut,
        full: Program,
        small: Program,
        examples: Sequence[Example],
        sample_weights: Tensor | None,
        seed: int,
        *,
        before: Before,
        rest: torch.device | None = None,
        row_weights: Mapping[str, RowWeights] | None = None,
        thin: Mapping[str, ThinLayer] | None = None,
        recorded: ChosenOutputs | None = None,
    ) -> None:
        """Begin both networks; between two stretches, values rest on `rest`.

        `thin` has the layers of the smaller network that become two, by weight. With `recorded`
        outputs of the full network on these examples, it does not run again.

        `row_weights` is for language models, and may be empty: errors are relative to the size of
        the residual stream, rows of the layers that it names count by their size, and more rows are
        fitted.
        """
        self.new_weights: dict[str, Tensor] = {}
        self.changed: set[str] = set()
        """The names of all weights that were refitted."""
        self.errors: dict[str, tuple[float, float]] = {}
        self.factors: dict[str, Factors] = {}
        """The factors of every layer that became two."""
        self._cut, self._before, self._thin = cut, before, thin or {}
        self._of_tokens, self._weights_by_size = row_weights is not None, row_weights or {}
        self._recorded = recorded
        self.full = Passage.begin(_executor(full), () if recorded else examples, rest)
        self.small = Passage.begin(_executor(small), examples, rest)
        self._full, self._small = self.full.executor, self.small.executor
        self._full_frames, self._small_frames = self.full.frames, self.small.frames
        sizes = [batch_size(example) for example in examples]
        self._weights = None if sample_weights is None else sample_weights.split(sizes)
        starts = [sum(sizes[:batch]) for batch in range(len(sizes))]
        self._batches = [
            BatchRows(size, start, example.masks, seed)
            for size, start, example in zip(sizes, starts, examples, strict=True)
        ]
        self._examples = sum(sizes)
        self._uses = uses_of_weights(small)
        self._equal = equal_values(full, small, {*cut.weights, *self._thin})
        self._whole = self._begin_thin()

    def _begin_thin(self) -> dict[str, dict[str, Tensor]]:
        """Use the first factors of every thin layer; return the tensors that they replace.

        A layer gets these tensors back right before it is solved. Layers that are not refitted
        keep their first factors.
        """
        whole: dict[str, dict[str, Tensor]] = {}
        for weight, layer in self._thin.items():
            whole[weight] = {name: self._small.weights[name] for name in layer.start}
            for name, value in layer.start.items():
                self.set_weight(name, value)
            self.factors[weight] = layer.factors
        return whole

    def begins_stretch(self, small_node: fx.Node) -> bool:
        """Return whether a node of the smaller network is a layer to refit."""
        return self._dense(small_node) is not None

    def run(self, pairs: Pairs, *, is_last: bool = False) -> None:
        """Run a stretch in the full network, refit its first layer, run it in the smaller one.

        After the last stretch no values are needed. Those of a language model take much memory: one
        score per token of its vocabulary.
        """
        layer = self._layer(*pairs[0])
        if is_last and layer is None:
            return
        full_nodes, small_nodes = zip(*pairs, strict=True)
        with self._full.holding(full_nodes), self._small.holding(small_nodes):
            rows = []
            for batch in range(len(self._batches)):
                rows.append(self._rows_of_batch(pairs, layer, batch))
                if is_last and self._recorded is None:
                    self._full_frames[batch].values.clear()
            if layer is not None:
                self._refit(layer, [batch_rows for batch_rows in rows if batch_rows is not None])
            if is_last:
                return
            hooks = {"before": self._before, "protected": self._equal}
            self.small.advance(small_nodes, lambda batch: hooks)

    def run_only_full(self, full_nodes: Sequence[fx.Node]) -> None:
        """Run a stretch in the full network alone; the smaller one is restored afterwards."""
        hooks = {"before": self._before, "protected": self._equal}
        self.full.advance(full_nodes, lambda batch: hooks)

    def _rows_of_batch(self, pairs: Pairs, layer: LayerPair | None, batch: int) -> LayerRows | None:
        """Return the rows of the first layer of a stretch; the full network runs, if it must."""
        if self._recorded is not None:
            if layer is None:
                return None
            recorded = self._recorded.rows(pairs[0][0], batch)
            with self.small.working(self._small_frames[batch]):
                sample = self._sample(layer, batch, recorded.at)
                full = FullRows(recorded.output, recorded.summand)
                return self._rows(layer, full, sample)
        full_frame, small_frame = self._full_frames[batch], self._small_frames[batch]
        with self.full.working(full_frame), self.small.working(small_frame):
            return self._run_full(pairs, layer, batch)

    def _run_full(self, pairs: Pairs, layer: LayerPair | None, batch: int) -> LayerRows | None:
        at = None if layer is None else self._positions(layer, batch)
        sample = None if layer is None else self._sample(layer, batch, at)
        small_nodes = dict(pairs)
        rows: list[LayerRows] = []

        def after(node: fx.Node, value: Tensor) -> None:
            if node in self._equal:
                self._small_frames[batch].values[small_nodes[node]] = value
            if layer is not None and sample is not None and small_nodes[node] is layer.small_node:
                full = self._full_rows(layer, batch, value, sample.at)
                rows.append(self._rows(layer, full, sample))

        self._full.advance(
            self._full_frames[batch],
            [full_node for full_node, _ in pairs],
            before=self._before,
            after=after,
            protected=self._equal,
        )
        return rows[0] if rows else None

    def _dense(self, small_node: fx.Node) -> DenseLayer | None:
        """Return the dense layer that a node is, if its inputs changed and it is used once.

        In a language model, only layers whose output becomes part of the residual stream are
        refitted: their target is the stream of the full network. Other layers read a normalised
        stream, and targets of their own would only be fitted to the calibration texts.
        """
        if small_node in self._equal or (self._of_tokens and normalised_value(small_node) is None):
            return None
        dense = dense_layer_of(self._small.program, small_node, self._small.weights)
        return dense if dense is not None and self._uses.get(dense.weight, 0) == 1 else None

    def _layer(self, full_node: fx.Node, small_node: fx.Node) -> LayerPair | None:
        dense = self._dense(small_node)
        if dense is None:
            return None
        for name, value in self._whole.pop(dense.weight, {}).items():
            self.set_weight(name, value)
        weight, is_transposed = weight_of(self._full.program, full_node)
        kept = kept_outputs(self._cut, weight, dim=1 if is_transposed else 0)
        outputs = dense.shape[0]
        kept = torch.arange(outputs) if kept is None else kept
        full = epilogue_of(self._full.program, full_node, self._full.weights)
        small = epilogue_of(self._small.program, small_node, self._small.weights)
        if len(kept) != outputs or (full.norm is None) != (small.norm is None):
            return None
        summands = self._summands(full_node, full, small)
        return LayerPair(small_node, dense, kept, full, small, summands)

    def _summands(
        self, node: fx.Node, full: Epilogue, small: Epilogue
    ) -> tuple[fx.Node, fx.Node] | None:
        """Return the other summand in both networks, if it is known by now and of this shape."""
        if full.summand is None or small.summand is None:
            return None
        if small.summand not in self._small_frames[0].values:
            return None
        if self._recorded is not None:
            known = self._recorded.rows(node, 0).summand is not None
            return (full.summand, small.summand) if known else None
        full_values = self._full_frames[0].values
        if full.summand not in full_values:
            return None
        same_shape = has_shape_of(full.summand, full_values[full.summand].shape, node)
        return (full.summand, small.summand) if same_shape else None

    def _sample(self, layer: LayerPair, batch: int, at: Tensor | None) -> LayerSample:
        """Return the rows `at` of a batch from the inputs of the smaller network's layer."""
        dense, frame, summand = layer.dense, self._small_frames[batch], None
        (operand, *_), _ = self._small.arguments(frame, layer.small_node)
        if layer.summands is not None:
            summand = dense.outputs(frame.values[layer.summands[1]], at)
        X = dense.inputs(operand, at)
        weights = None
        if self._weights is not None:
            weights = row_weights(layer, self._weights[batch], operand, at, len(X))
        counts = dense.counting(operand, at, self._batches[batch])
        return LayerSample(at, X, summand, weights, counts)

    def _positions(self, layer: LayerPair, batch: int) -> Tensor | None:
        """Choose the rows of a batch at a layer."""
        wanted = sample_size(layer.dense, self._of_tokens)
        (operand, *_), _ = self._small.arguments(self._small_frames[batch], layer.small_node)
        return layer.dense.positions(operand, -(-wanted // self._examples), self._batches[batch])

    def _full_rows(
        self, layer: LayerPair, batch: int, output: Tensor, at: Tensor | None
    ) -> FullRows:
        """Return the rows `at` of the full network's output of a layer."""
        rows, norm, summand = layer.dense.outputs(output, at), layer.full_epilogue.norm, None
        if norm is not None and norm.node not in self._full.kernels:  # else it has passed it
            rows = norm.applied(rows)
        if layer.summands is not None:
            value = self._full_frames[batch].values[layer.summands[0]]
            summand = layer.dense.outputs(value, at)
        return FullRows(rows, summand)

    def _rows(self, layer: LayerPair, full: FullRows, sample: LayerSample) -> LayerRows:
        """Return sampled inputs with the target that the full network's rows set for them."""
        if not self._of_tokens or not layer.is_normalised:
            return rows_with_target(layer, full, sample)
        known = self._weights_by_size.get(layer.dense.weight)
        return rows_with_target(
            layer, full, sample, inverse_sizes if known is None else known.factors
        )

    def _refit(self, layer: LayerPair, rows: list[LayerRows]) -> None:
        """Solve for the weights of one layer, and replace them if held-out rows improve."""
        dense = layer.dense
        weight = self._small.weights[dense.weight]
        bias = self._small.weights.get(dense.bias or "")
        if (thin := self._thin.get(dense.weight)) is not None:
            self._solve_thin(layer, rows, thin.rank)
            return
        solution = solve_layer(layer, rows, dense.matrix(weight), bias)
        self.errors[dense.weight] = (solution.before, solution.after)
        if solution.change is None:
            return
        self.set_weight(dense.weight, weight + dense.stored(solution.change))
        self._add_to_bias(layer, solution.shift)

    def _solve_thin(self, layer: LayerPair, rows: list[LayerRows], rank: int) -> None:
        """Solve for the two factors of a layer; their product replaces its weights."""
        dense = layer.dense
        weight, bias = self._small.weights[dense.weight], self._small.weights.get(dense.bias or "")
        solved = solve_thin_layer(layer, rows, dense.matrix(weight), bias, rank)
        self.errors[dense.weight] = (solved.before, solved.after)
        self.factors[dense.weight] = solved.factors
        self.set_weight(dense.weight, dense.stored(solved.factors.product()))
        self._add_to_bias(layer, solved.shift)

    def _add_to_bias(self, layer: LayerPair, shift: Tensor) -> None:
        """Add to the bias of a layer, or to the mean of the norm after it."""
        name, norm = layer.dense.bias, layer.small_epilogue.norm
        if name is not None:
            self.set_weight(name, self._small.weights[name] + shift)
        elif norm is not None:
            self.set_weight(norm.running_mean, self._small.weights[norm.running_mean] - shift)

    def set_weight(self, name: str, value: Tensor) -> None:
        """Give the smaller network a new weight."""
        stored = self.new_weights[name] = self._small.set_weight(name, value)
        self.changed.add(name)
        for node in transposes_of(self._small.program, name):  # made before the layer that reads it
            for frame in self._small_frames:
                if node in frame.values:
                    frame.values[node] = stored.to(frame.values[node].device).t()

    def hand_over(self, stored: Mapping[str, Tensor]) -> None:
        """Use stored tensors, which have the new weights, instead of copies of them."""
        for name in self.new_weights:
            self._small.set_weight(name, stored[name])
        self.new_weights.clear()


def _executor(program: Program) -> Executor:
    """Return an executor whose fast kernels read weights when their layer first runs."""
    executor = Executor(program)
    executor.kernels = fast_kernels(program, executor.weights)
    return executor
