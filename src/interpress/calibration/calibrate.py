"""`calibrate`: run the original network over the calibration set once and collect statistics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from interpress.calibration.averaged import averaged_sources
from interpress.calibration.consumers import dense_consumers, shrinkable_taps
from interpress.calibration.layer_outputs import LayerOutputs
from interpress.calibration.output_checks import check_not_nan, check_same_outputs
from interpress.calibration.patch_directions import main_directions
from interpress.calibration.row_weights import RowWeights
from interpress.calibration.rows_wanted import RowsWanted
from interpress.calibration.sample_weights import TopClasses, concatenate, top_classes_of
from interpress.calibration.statistics import OutputVariance, PatchMoments, Statistics
from interpress.calibration.tap_rows import TapRows, TapRowsState
from interpress.data.batches import batch_size, split_batch
from interpress.errors import DataError, InterpressError
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.graph.dense import DenseLayer
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.fast_kernels import fast_kernels
from interpress.graph.normalised import inverse_sizes, normalised_value
from interpress.graph.patterns import epilogue_of, scaled_by_norm
from interpress.graph.rows import BatchRows
from interpress.spaces.read_sites import by_node, operand_of
from interpress.spaces.spaces import Spaces
from interpress.spaces.taps import Site, Tap

LARGEST_PATCH = 1536
"""Inputs per output of a consumer whose patches are measured. Of larger patches, only the main
directions of every channel are measured, so that the Gram matrix stays about this small."""
_MOST_CHANNELS = 1024
"""Channels up to which large patches are measured: at least two directions of every channel."""
_FEWEST_DIRECTIONS = 2


def calibrate(
    spaces: Spaces,
    batches: Iterable[Example],
    *,
    patches: bool = True,
    meaning: OutputMeaning | None = None,
    expected: int | None = None,
    seed: int = 0,
    row_weights: Mapping[str, RowWeights] | None = None,
    layer_outputs: LayerOutputs | None = None,
    done: Callable[[], None] = lambda: None,
) -> Statistics:
    """Run the original network over the batches once; memory does not grow with the data.

    `patches` also measures what the selection "patches" needs. `expected` is about how many
    examples there are, if known. `row_weights` as for a `Collector`. `layer_outputs` records
    what a refit needs. `done` is called after every batch.
    """
    of_tokens = predicts_tokens(meaning)
    collector = Collector(
        spaces, seed, patches, expected, of_tokens=of_tokens, row_weights=row_weights
    )
    top_classes: list[TopClasses | None] = []
    kernels = fast_kernels(spaces.program, spaces.program.parameters())
    executor = Executor(spaces.program, kernels=kernels)
    examples = 0
    for number, example in enumerate(batches):
        size = batch_size(example)
        collector.batch = BatchRows(size, examples, example.masks, seed, alone=expected == 1)
        if layer_outputs is not None:
            layer_outputs.begin(collector.batch, kernels)
        outputs = run_batch(executor, example, number, collector, layer_outputs)
        if number == 0:
            check_same_outputs(spaces, example, outputs)
        top_classes.append(top_classes_of(meaning, outputs, size))
        examples += size
        done()
    return collector.statistics(examples, concatenate(top_classes))


def predicts_tokens(meaning: OutputMeaning | None) -> bool:
    """Return whether the model is a language model."""
    return meaning is not None and meaning.tokens is not None


def survey(
    spaces: Spaces, batches: Iterable[Example], meaning: OutputMeaning | None, most: int | None
) -> tuple[int, TopClasses | None]:
    """Count the examples, and return the classes that the network predicts for them.

    If it does not make one decision per example, only the first examples are run, to check them.
    At most `most` examples run at once.
    """
    executor = Executor(spaces.program)
    examples, top_classes = 0, list[TopClasses | None]()
    for number, batch in enumerate(batches):
        for example in split_batch(batch, most):
            size = batch_size(example)
            if examples == 0 or top_classes[0] is not None:
                outputs = executor.run(example)
                check_not_nan(outputs, number)
                if examples == 0:
                    check_same_outputs(spaces, example, outputs)
                top_classes.append(top_classes_of(meaning, outputs, size))
            examples += size
    return examples, concatenate(top_classes)


class CollectorState(NamedTuple):
    """All sums of a collector."""

    rows: Mapping[str, TapRowsState]
    moments: Mapping[str, PatchMoments]
    variances: Mapping[str, OutputVariance]


class Collector:
    """Hooks for the executor that add what they see to the statistics."""

    def __init__(
        self,
        spaces: Spaces,
        seed: int,
        patches: bool,
        expected: int | None,
        taps: Collection[str] | None = None,
        *,
        of_tokens: bool = False,
        row_weights: Mapping[str, RowWeights] | None = None,
    ) -> None:
        """Prepare to measure some taps, or all at which a channel can be dropped.

        `of_tokens` is for language models: rows are relative to the size of the residual stream,
        and more of them are taken. `row_weights` says, per tap, how much rows of a size count.
        """
        self.batch = BatchRows(1)
        self._spaces = spaces
        self._taps = [t for t in shrinkable_taps(spaces) if taps is None or t.name in taps]
        self._rows = {tap.name: TapRows(tap) for tap in self._taps}
        self._moments: dict[str, PatchMoments] = {}
        self._variances: dict[str, OutputVariance] = {}
        self._sites = by_node(self._taps)
        self._consumers = dense_consumers(spaces, self._taps)
        self._pooled = averaged_sources(self._taps)
        self._patches = patches
        self._wanted = RowsWanted(expected, patches=patches, of_tokens=of_tokens)
        self._outputs: dict[fx.Node, list[tuple[str, int]]] = {}
        self._of_tokens, self._row_weights = of_tokens, row_weights or {}
        self._streams: dict[str, fx.Node] = {}  # per tap, what its rows are relative to
        self._waiting: dict[str, tuple[Tap, Site, Tensor]] = {}
        parameters = spaces.program.parameters()
        for name, dense in self._consumers.items():
            self._variances[name] = OutputVariance()
            node = spaces.taps[name].sites[0].op.node
            last = epilogue_of(spaces.program, node, parameters).last
            is_linear = not dense.spatial
            if of_tokens and is_linear and (stream := normalised_value(node)) is not None:
                last = self._streams[name] = stream
            self._outputs.setdefault(last, []).append((name, 1 if dense.spatial else -1))

    def before(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """Add the operands of a node that are taps."""
        for tap, site in self._sites.get(node, ()):
            operand = operand_of(node, args, kwargs, site)
            if tap.name in self._streams:
                self._waiting[tap.name] = tap, site, operand
            else:
                self._add(tap, site, operand)
        return args, kwargs

    def _add(self, tap: Tap, site: Site, operand: Tensor, scale: Tensor | None = None) -> None:
        """Add the rows of a tap, and the patches of its consumer; `scale` multiplies the rows."""
        count = tap.rows(operand, site)
        at = self.batch.sample(count, self._wanted.rows(tap.size))
        scale_at = scale if scale is None or at is None else scale[at.to(scale.device)]
        self._rows[tap.name].add(operand, site, at, self.batch.halves(count, at), scale_at)
        dense = self._consumers.get(tap.name)
        if not self._patches or dense is None or dense.groups > 1:
            return
        if not _patches_are_rows(tap, dense) and dense.shape[1] <= _MOST_CHANNELS:
            self._add_patches(tap.name, dense, operand, scale)

    def after(self, node: fx.Node, value: Any) -> None:
        """Add the variance of consumers' outputs, and channels before they are averaged."""
        for name, channel in self._outputs.get(node, ()):
            is_relative = name in self._streams
            output = self._add_relative(name, value) if is_relative else value
            self._variances[name].add(output, channel, self.batch.masks)
        for source in self._pooled.get(node, ()):
            rows, in_second = source.rows(value, self.batch, self._wanted.rows(len(source.order)))
            self._rows[source.tap].add_local(rows, in_second)

    def _add_relative(self, name: str, stream: Tensor) -> Tensor:
        """Add rows that waited for the stream, relative to its size; return the scaled stream."""
        rows, weights = stream.reshape(-1, stream.shape[-1]), self._row_weights.get(name)
        scale = inverse_sizes(rows) if weights is None else weights.factors(rows)
        self._add(*self._waiting.pop(name), scale)
        return stream * scale.reshape(*stream.shape[:-1], 1)

    def begin_like(self, other: Collector) -> None:
        """Measure patches relative to what another collector measures them relative to."""
        self._moments = {name: moments.emptied() for name, moments in other._moments.items()}
        for name, rows in self._rows.items():
            rows.begin_like(other._rows[name])

    def state(self) -> CollectorState:
        """Return all sums, to be added to those of another collector."""
        rows = {name: tap_rows.state() for name, tap_rows in self._rows.items()}
        return CollectorState(rows, self._moments, self._variances)

    def add_state(self, state: CollectorState) -> None:
        """Add the sums of another collector, which began like this one."""
        for name, rows in state.rows.items():
            self._rows[name].add_state(rows)
        for name, moments in state.moments.items():
            if name not in self._moments:
                raise DataError(
                    "no position of the first batch counts, so several processes cannot measure "
                    "alike; put a batch first in which the mask keeps some positions"
                )
            self._moments[name].merge(moments)
        for name, variance in state.variances.items():
            self._variances[name].merge(variance)

    def statistics(self, examples: int, top_classes: TopClasses | None) -> Statistics:
        """Return everything that was collected."""
        halves = {name: rows.halves() for name, rows in self._rows.items()}
        if self._patches:
            for tap in self._taps:
                dense = self._consumers.get(tap.name)
                if dense is not None and dense.groups == 1 and _patches_are_rows(tap, dense):
                    self._moments[tap.name] = PatchMoments.of_rows(halves[tap.name])
        variances = {name: variance.variance for name, variance in self._variances.items()}
        return Statistics(halves, variances, self._moments, examples, top_classes)

    def _add_patches(
        self, name: str, dense: DenseLayer, operand: Tensor, scale: Tensor | None
    ) -> None:
        wanted = self._wanted.patches_of(min(dense.unknowns, LARGEST_PATCH))
        at = dense.positions(operand, wanted, self.batch)
        X, in_second = dense.inputs(operand, at), dense.halves(operand, at, self.batch)
        counts = dense.counting(operand, at, self.batch)
        if scale is not None:  # of a linear layer, whose rows are those of the stream
            X = X * (scale if at is None else scale[at.to(scale.device)])[:, None]
        if counts is not None:
            X, in_second = X[counts.to(X.device)], in_second[counts]
        X = X[:, 0].to(torch.promote_types(X.dtype, torch.float32))
        if not len(X):  # a mask excludes the whole batch
            return
        if name not in self._moments:
            self._moments[name] = self._no_moments(name, dense, X)
        self._moments[name].add(X, in_second)

    def _no_moments(self, name: str, dense: DenseLayer, X: Tensor) -> PatchMoments:
        """Return moments of no rows; `X` are the first patches, which choose directions."""
        if dense.unknowns <= LARGEST_PATCH:
            return PatchMoments.empty(dense.unknowns, X.dtype, X.device)
        spaces, channels = self._spaces, dense.shape[1]
        count = max(_FEWEST_DIRECTIONS, LARGEST_PATCH // channels)
        parameters, node = spaces.program.parameters(), spaces.taps[name].sites[0].op.node
        W = scaled_by_norm(spaces.program, node, parameters, parameters[dense.weight])
        W = W.reshape(len(W), channels, -1)
        moments = PatchMoments.empty(channels * count, X.dtype, X.device)
        moments.basis, moments.dual = main_directions(X, W, count)
        return moments


def _patches_are_rows(tap: Tap, dense: DenseLayer) -> bool:
    """Return whether a patch is a row of the tap, as for linear layers and 1 x 1 convolutions."""
    in_order = torch.arange(tap.size)
    return dense.unknowns == tap.size and torch.equal(tap.absorbers[0].column, in_order)


def run_batch(
    executor: Executor,
    example: Example,
    number: int,
    collector: Collector,
    layer_outputs: LayerOutputs | None = None,
) -> list[Tensor]:
    """Run calibration batch `number` with a collector, and return the outputs."""

    def after(node: fx.Node, value: Any) -> None:
        collector.after(node, value)
        if layer_outputs is not None:
            layer_outputs.after(node, value)

    try:
        outputs = executor.run(example, before=collector.before, after=after)
    except InterpressError:
        raise
    except (RuntimeError, IndexError, ValueError) as problem:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in example.tensors())
        line = next(iter(str(problem).splitlines()), "")
        raise DataError(
            f"the model does not run on calibration batch {number} with inputs of shape {shapes} "
            f"({type(problem).__name__}: {line}); give inputs of the shapes that the model takes"
        ) from problem
    check_not_nan(outputs, number)
    return outputs
