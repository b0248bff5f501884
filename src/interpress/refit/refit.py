"""Least-squares refit: every dense layer of the small network is re-solved, front to back.

Layer by layer, on the small network's own inputs, the weights are chosen that bring its outputs
closest to the full network's: a ridge regression towards the weights that surgery made, bias
included, closed form, no labels. Where the output goes into a sum (a residual stream), the target
makes up for what the sum lost before. Both networks are walked once, side by side; rows are
sampled. A layer keeps its new weights only if they are closer on rows that were not fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from interpress.data.batches import batch_size
from interpress.errors import DataError
from interpress.graph.capture import capture
from interpress.graph.dense import CONVOLUTIONS, DenseLayer, dense_layer_of
from interpress.graph.example import Example
from interpress.graph.executor import evaluate
from interpress.graph.fast_kernels import fast_kernels
from interpress.graph.patterns import Epilogue, arguments_of, epilogue_of, family, weight_name
from interpress.graph.program import Program, captured_name, fixed_size, writes
from interpress.refit.regression import Regression
from interpress.surgery.cut import Cut
from interpress.graph.model_state import output_tensors
from interpress.surgery.weights import copy_with

_ROWS = 16384  # for few unknowns; fewer for more, but
_LEAST_ROWS = 4096  # and one per unknown
_WORK = 6_000_000  # rows times unknowns
_ROWS_GROUPED = 2048
_ENOUGH = 8  # rows per unknown, of which one example gives
_ROWS_PER_EXAMPLE = 16  # at most: others are much like them


@dataclass
class Refit:
    """New weights by name, and what each layer's error was before and after."""

    weights: dict[str, Tensor] = field(default_factory=dict)
    errors: dict[str, tuple[float, float]] = field(default_factory=dict)
    skipped: str | None = None
    """Why nothing was tried, if nothing was."""


def refit(
    cut: Cut,
    smaller: nn.Module,
    examples: Sequence[Example],
    *,
    counts: Tensor | None = None,
    seed: int = 0,
    done: Callable[[int], None] = lambda operators: None,
) -> Refit:
    """New weights for a smaller network, from a few batches that are all held at once.

    `counts` says how much every example counts; all the same if it is None.
    """
    full = cut.spaces.program
    small = _twin(full, smaller)
    if not _same_operators(full, small):
        return Refit(skipped="the smaller network runs other operators than the original")
    walk = _Walk(cut, full, small, examples, counts, seed)
    for stretch in walk.stretches():
        walk.go(stretch)
        done(len(stretch))
    return walk.result


def examples_needed(program: Program) -> int:
    """How many examples give every layer of a network rows enough; more add next to nothing."""
    parameters = program.parameters()
    needed = 1
    for node in program.nodes:
        dense = dense_layer_of(program, node, parameters)
        if dense is not None:
            made = node.meta["val"].shape
            sizes = [fixed_size(n) or 1 for n in (made[2:] if dense.spatial else made[1:-1])]
            rows = min(math.prod(sizes), _ROWS_PER_EXAMPLE)
            needed = max(needed, -(-_ENOUGH * dense.unknowns // rows))
    return needed


def _twin(full: Program, smaller: nn.Module) -> Program:
    """A graph of the smaller network: the original's own where that gives the same outputs.

    It does unless sizes are written into its operators; then the smaller network is captured.
    """
    same = replace(full, model=smaller)
    try:
        expected = output_tensors(smaller, full.example)
        found = same.run(full.example, watch=own_groups)
        if all(torch.allclose(a, b, 1e-4, 1e-5) for a, b in zip(found, expected, strict=True)):
            return same
    except (RuntimeError, ValueError, DataError):
        pass
    return capture(smaller, full.example)


def own_groups(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """The arguments of a grouped convolution with as many groups as its weight says."""
    if node.op == "call_function" and family(node) in CONVOLUTIONS and len(args) > 6:
        groups = args[0].shape[1] // args[1].shape[1]
        return (*args[:6], groups, *args[7:]), kwargs
    return args, kwargs


def refitted(smaller: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """A copy of a smaller network with refitted weights."""
    named = dict(smaller.named_parameters()) | dict(smaller.named_buffers())
    return copy_with(smaller, {name: w.to(named[name]) for name, w in weights.items()})


class _Side:
    """One of the two networks, at work on a list of batches."""

    def __init__(self, program: Program, examples: Sequence[Example]) -> None:
        self.program = program
        self.weights = program.parameters()
        self.quick = fast_kernels(program, self.weights)
        self.values: list[dict[fx.Node, Any]] = [{} for _ in examples]
        self._fixed: dict[fx.Node, Any] = {}
        self._last = program.last_use()
        inputs = [program.flat_inputs(example) for example in examples]
        for node in program.nodes:
            if node.op == "get_attr":
                self._fixed[node] = node.meta["attribute"]
            elif node.op == "placeholder":
                name = captured_name(node)
                if name in program.weights:
                    self._fixed[node] = self.weights[program.weights[name]]
                elif name in program.constants:
                    self._fixed[node] = program.constants[name]
                else:
                    place = program.inputs.index(name)
                    for own, leaves in zip(self.values, inputs, strict=True):
                        own[node] = leaves[place]

    def arguments(self, node: fx.Node, batch: int) -> Any:
        """What an operator is called with."""
        own, fixed = self.values[batch], self._fixed
        return fx.node.map_arg((node.args, node.kwargs), lambda n: own[n] if n in own else fixed[n])

    def run(self, node: fx.Node, batch: int, shared: set[fx.Node]) -> Any:
        """Run one operator; `shared` are values that the other network has too."""
        args, kwargs = self.arguments(node, batch)
        args, kwargs = own_groups(node, args, kwargs)
        if writes(node):  # not into a value that the other network shares
            args = tuple(
                arg.clone() if isinstance(arg, Tensor) and own in shared else arg
                for arg, own in zip(args, node.args, strict=True)
            )
        value = self.values[batch][node] = evaluate(node, args, kwargs, self.quick.get(node))
        return value

    def forget(self, node: fx.Node, batch: int) -> None:
        """Drop what nothing needs after a node."""
        for done in self._last.get(node, ()):
            self.values[batch].pop(done, None)

    def set(self, name: str, value: Tensor) -> Tensor:
        """Replace a weight; returns it in the weight's own type."""
        value = self.weights[name] = value.to(self.weights[name])
        for node in self._fixed:
            if node.op == "placeholder" and self.program.weights.get(captured_name(node)) == name:
                self._fixed[node] = value
        return value


@dataclass(frozen=True, eq=False)
class _Layer:
    """A dense layer to refit."""

    twin: fx.Node
    dense: DenseLayer
    kept: Tensor
    """Which outputs of the full layer it has."""
    after: tuple[Epilogue, Epilogue]
    others: tuple[fx.Node, fx.Node] | None
    """What is added to its output, in both networks, where that is known by then."""


_Rows = tuple[Tensor, Tensor, Tensor]
"""Inputs, what they should become, and what is added."""


@dataclass(frozen=True, eq=False)
class _Sample:
    """Some rows of a batch at a layer."""

    at: Tensor | None
    """Where; None for all."""
    X: Tensor
    """What the small layer gets."""
    added: Tensor | None
    """What is added to what it makes of that."""
    counts: Tensor | None
    """How much they count; None if all the same."""


class _Walk:
    """Both networks side by side, from one layer to the next, over a list of batches."""

    def __init__(
        self,
        cut: Cut,
        full: Program,
        small: Program,
        examples: Sequence[Example],
        counts: Tensor | None,
        seed: int,
    ) -> None:
        self.cut, self.full, self.small = cut, _Side(full, examples), _Side(small, examples)
        self.result = Refit()
        self._batches = range(len(examples))
        sizes = [batch_size(example) for example in examples]
        self._counts = None if counts is None else counts.split(sizes)
        self._sizes = sizes
        self._generator = torch.Generator().manual_seed(seed)
        self._uses = _uses(small)
        self._alike: set[fx.Node] = set()  # nodes of either whose values are the same in both
        for node, twin in zip(full.nodes, small.nodes, strict=True):
            if self._is_alike(node):
                self._alike |= {node, twin}

    def _is_alike(self, node: fx.Node) -> bool:
        if node.op == "placeholder":
            return self.full.program.weights.get(captured_name(node)) not in self.cut.weights
        return all(operand in self._alike for operand in node.all_input_nodes)

    def stretches(self) -> Iterator[list[tuple[fx.Node, fx.Node]]]:
        """All operators of both networks, in stretches that begin with a layer to refit."""
        stretch: list[tuple[fx.Node, fx.Node]] = []
        for node, twin in zip(self.full.program.nodes, self.small.program.nodes, strict=True):
            if node.op != "call_function":
                continue
            if stretch and self._dense(twin) is not None:
                yield stretch
                stretch = []
            stretch.append((node, twin))
        yield stretch

    def go(self, stretch: list[tuple[fx.Node, fx.Node]]) -> None:
        """Run a stretch in the full network, refit its first layer, run it in the small one."""
        layer = self._layer(*stretch[0])
        rows: list[_Rows] = []
        counts: list[Tensor | None] = []
        for batch in self._batches:
            sample_rows = None if layer is None else self._inputs(layer, batch)
            for node, twin in stretch:
                value = self.full.run(node, batch, self._alike)
                if node in self._alike:
                    self.small.values[batch][twin] = value
                if layer is not None and sample_rows is not None and twin is layer.twin:
                    rows.append(self._wishes(layer, batch, value, sample_rows))
                    counts.append(sample_rows.counts)
                self.full.forget(node, batch)
        if layer is not None:
            self._refit(layer, rows, counts)
        for batch in self._batches:
            for _, twin in stretch:
                if twin not in self._alike:
                    self.small.run(twin, batch, self._alike)
                self.small.forget(twin, batch)

    def _dense(self, twin: fx.Node) -> DenseLayer | None:
        if twin in self._alike:
            return None
        dense = dense_layer_of(self.small.program, twin, self.small.weights)
        return dense if dense is not None and self._uses.get(dense.weight, 0) == 1 else None

    def _layer(self, node: fx.Node, twin: fx.Node) -> _Layer | None:
        dense = self._dense(twin)
        if dense is None:
            return None
        kept = _kept_outputs(self.cut, weight_name(self.full.program, arguments_of(node)["weight"]))
        outputs = len(self.small.weights[dense.weight])
        kept = torch.arange(outputs) if kept is None else kept
        after = (
            epilogue_of(self.full.program, node, self.full.weights),
            epilogue_of(self.small.program, twin, self.small.weights),
        )
        if len(kept) != outputs or (after[0].norm is None) != (after[1].norm is None):
            return None
        return _Layer(twin, dense, kept, after, self._others(node, after))

    def _others(
        self, node: fx.Node, after: tuple[Epilogue, Epilogue]
    ) -> tuple[fx.Node, fx.Node] | None:
        """The other summand in both networks, where it is known by now and of the same shape."""
        theirs, ours = after[0].other, after[1].other
        full, small = self.full.values[0], self.small.values[0]
        if theirs is None or ours is None or theirs not in full or ours not in small:
            return None
        shape, made = full[theirs].shape, node.meta["val"].shape
        alike = len(shape) == len(made) and list(shape[1:]) == [fixed_size(n) for n in made[1:]]
        return (theirs, ours) if alike else None

    def _inputs(self, layer: _Layer, batch: int) -> _Sample:
        """Some rows of a batch, as the small network has them."""
        dense = layer.dense
        fair = min(_ROWS, _WORK // dense.unknowns)
        wanted = max(fair, _LEAST_ROWS + dense.unknowns) if dense.groups == 1 else _ROWS_GROUPED
        (operand, *_), _ = self.small.arguments(layer.twin, batch)
        own = -(-wanted * self._sizes[batch] // sum(self._sizes))
        at = dense.positions(operand, own, self._generator)
        added = None
        if layer.others is not None:
            added = dense.outputs(self.small.values[batch][layer.others[1]], at)
        X = dense.inputs(operand, at)
        return _Sample(at, X, added, self._row_counts(layer, batch, operand, at, len(X)))

    def _row_counts(
        self, layer: _Layer, batch: int, operand: Tensor, at: Tensor | None, rows: int
    ) -> Tensor | None:
        """How much every row counts: as its example, where it is clear which that is."""
        if self._counts is None:
            return None
        counts = self._counts[batch]
        if len(operand) != len(counts) or fixed_size(layer.twin.meta["val"].shape[0]) is not None:
            return torch.ones(rows)
        if at is None or layer.dense.spatial:
            return counts.repeat_interleave(rows // len(counts))
        per_example = operand.numel() // operand.shape[-1] // len(counts)
        return counts[at // per_example]

    def _wishes(self, layer: _Layer, batch: int, target: Tensor, sample: _Sample) -> _Rows:
        """The same rows: inputs, what the output goes on to be in the full network, and what is
        added to it in the small one (a single row if that is the same for all)."""
        at, X, added = sample.at, sample.X, sample.added
        dense, kept = layer.dense, layer.kept.to(target.device)
        wish = dense.outputs(target, at).index_select(1, kept)
        offset = wish.new_zeros(1, wish.shape[1]) if added is None else added
        full, small = layer.after[0].norm, layer.after[1].norm
        if full is not None and small is not None:
            if full.node not in self.full.quick:  # else it is folded into the target
                scale, shift = full.scale[layer.kept].to(wish), full.shift[layer.kept].to(wish)
                wish = torch.addcmul(shift, wish, scale)
            offset = offset + small.shift.to(wish)
        if layer.others is not None:
            other = dense.outputs(self.full.values[batch][layer.others[0]], at)
            wish = wish + other.index_select(1, kept)
        return X, wish, offset

    def _refit(self, layer: _Layer, rows: list[_Rows], counts: list[Tensor | None]) -> None:
        dense, (theirs, ours) = layer.dense, layer.after
        weight, bias = self.small.weights[dense.weight], self.small.weights.get(dense.bias or "")
        X, wish, offset = zip(*rows, strict=True)
        known = [own for own in counts if own is not None]
        regression = Regression(
            X,
            torch.cat(wish),
            offset[0] if layer.others is None else torch.cat(offset),
            scale=None if ours.norm is None else ours.norm.scale,
            relu=theirs.relu and ours.relu,
            shifts=bias is not None or ours.norm is not None,
            weights=torch.cat(known) if known else None,
        )
        found = regression.solve(weight.reshape(len(weight), -1), bias)
        self.result.errors[dense.weight] = (found.before, found.after)
        if found.change is None:
            return
        self._set(dense.weight, weight + found.change.reshape(weight.shape))
        if bias is not None and dense.bias is not None:
            self._set(dense.bias, bias + found.shift)
        elif ours.norm is not None:
            mean = self.small.weights[ours.norm.running_mean]
            self._set(ours.norm.running_mean, mean - found.shift)

    def _set(self, name: str, value: Tensor) -> None:
        self.result.weights[name] = self.small.set(name, value)


def _same_operators(full: Program, small: Program) -> bool:
    return [(n.op, str(n.target) if n.op == "call_function" else "") for n in full.nodes] == [
        (n.op, str(n.target) if n.op == "call_function" else "") for n in small.nodes
    ]


def _uses(program: Program) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in program.nodes:
        if node.op == "placeholder" and (name := program.weights.get(captured_name(node))):
            counts[name] = counts.get(name, 0) + len(node.users)
    return counts


def _kept_outputs(cut: Cut, name: str | None) -> Tensor | None:
    """Which outputs of a dense layer stay: those of its weight's first dim."""
    if name is None or name not in cut.spaces.trace.weights:
        return None
    stays: Tensor | None = None
    for layer in cut.spaces.trace.weights[name].channels():
        if layer.support == (0,):
            own = cut.stays(layer.labels).reshape(-1)
            stays = own if stays is None else stays & own
    return None if stays is None else torch.nonzero(stays).reshape(-1)
