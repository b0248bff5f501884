"""Least-squares refit: every dense layer of the small network is re-solved, front to back.

Layer by layer, on the small network's own inputs, the weights are chosen that bring its outputs
closest to the full network's: a ridge regression towards the weights that surgery made, bias
included, closed form, no labels. Where the output goes into a sum (a residual stream), the target
makes up for what the sum lost before. Both networks are walked once, side by side; rows are
sampled. A layer keeps its new weights only if they are closer on rows that were not fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from interpress.errors import DataError
from interpress.graph.capture import capture
from interpress.graph.following import Following, arguments_of, family, following, weight_name
from interpress.graph.graph import Example, Graph, captured_name, evaluate, writes
from interpress.patches import CONVOLUTIONS, Dense, dense_of
from interpress.regression import Regression
from interpress.surgery import Cut, copied
from interpress.verify import outputs

_ROWS = 16384  # for few unknowns; fewer for more, but
_LEAST_ROWS = 7168  # and one per unknown
_WORK = 25_000_000  # rows times unknowns
_ROWS_GROUPED = 1024


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
    seed: int = 0,
    done: Callable[[], None] = lambda: None,
) -> Refit:
    """New weights for a smaller network, from a few batches that are all held at once."""
    full = cut.spaces.graph
    small = _twin(full, smaller)
    if not _same_operators(full, small):
        return Refit(skipped="the smaller network runs other operators than the original")
    walk = _Walk(cut, full, small, examples, seed)
    for node, twin in zip(full.nodes, small.nodes, strict=True):
        if node.op == "output":
            break
        walk.step(node, twin)
        done()
    return walk.result


def _twin(full: Graph, smaller: nn.Module) -> Graph:
    """A graph of the smaller network: the original's own where that gives the same outputs.

    It does unless sizes are written into its operators; then the smaller network is captured.
    """
    same = replace(full, model=smaller)
    try:
        expected = outputs(smaller, full.example)
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
    return copied(smaller, {name: w.to(named[name]) for name, w in weights.items()})


class _Walk:
    """Both networks, node by node, over a list of batches."""

    def __init__(
        self, cut: Cut, full: Graph, small: Graph, examples: Sequence[Example], seed: int
    ) -> None:
        self.cut, self.full, self.small = cut, full, small
        self.result = Refit()
        self._generator = torch.Generator().manual_seed(seed)
        self._weights = {"full": full.parameters(), "small": small.parameters()}
        self._inputs = {
            "full": [full.flat_inputs(example) for example in examples],
            "small": [small.flat_inputs(example) for example in examples],
        }
        self._full: dict[fx.Node, list[Any]] = {}
        self._small: dict[fx.Node, list[Any]] = {}
        self._last = full.last_use(), small.last_use()
        self._same: set[fx.Node] = set()
        self._uses = _uses(small)

    def step(self, node: fx.Node, twin: fx.Node) -> None:
        """Run one operator in both networks, and refit it in the small one first."""
        self._full[node] = self._run(node, "full")
        if self._is_same(node):
            self._same.add(node)
            self._small[twin] = self._full[node]
        else:
            dense = dense_of(self.small, twin, self._weights["small"])
            if dense is not None and self._uses.get(dense.weight, 0) == 1:
                self._refit(node, twin, dense)
            self._small[twin] = self._run(twin, "small")
        for values, last, at in zip(
            (self._full, self._small), self._last, (node, twin), strict=True
        ):
            for done in last.get(at, ()):
                values.pop(done, None)

    def _is_same(self, node: fx.Node) -> bool:
        if node.op == "placeholder":
            return self.full.weights.get(captured_name(node)) not in self.cut.weights
        return all(operand in self._same for operand in node.all_input_nodes)

    def _run(self, node: fx.Node, which: str) -> list[Any]:
        count = len(self._inputs[which])
        graph = self.full if which == "full" else self.small
        if node.op == "placeholder":
            name = captured_name(node)
            if name in graph.weights:
                return [self._weights[which][graph.weights[name]]] * count
            if name in graph.constants:
                return [graph.constants[name]] * count
            place = graph.inputs.index(name)
            return [inputs[place] for inputs in self._inputs[which]]
        if node.op == "get_attr":
            return [node.meta["attribute"]] * count
        return [self._evaluated(node, which, chunk) for chunk in range(count)]

    def _evaluated(self, node: fx.Node, which: str, chunk: int) -> Any:
        args, kwargs = self._arguments(node, which, chunk)
        if which == "small":
            args, kwargs = own_groups(node, args, kwargs)
        if writes(node):  # not into a value that the other network shares
            args = tuple(
                arg.clone() if isinstance(arg, Tensor) and own in self._same else arg
                for arg, own in zip(args, node.args, strict=True)
            )
        return evaluate(node, args, kwargs)

    def _arguments(self, node: fx.Node, which: str, chunk: int) -> Any:
        values = self._full if which == "full" else self._small
        return fx.node.map_arg((node.args, node.kwargs), lambda n: values[n][chunk])

    def _refit(self, node: fx.Node, twin: fx.Node, dense: Dense) -> None:
        kept = _kept_outputs(self.cut, weight_name(self.full, arguments_of(node)["weight"]))
        weight = self._weights["small"][dense.weight]
        if kept is None:
            kept = torch.arange(len(weight))
        if len(kept) != len(weight):
            return
        bias = self._weights["small"].get(dense.bias or "")
        after = (
            following(self.full, node, self._weights["full"]),
            following(self.small, twin, self._weights["small"]),
        )
        if (after[0].norm is None) != (after[1].norm is None):
            return
        rows = list(self._rows(node, twin, dense, kept, after))
        regression = Regression(
            *(torch.cat(parts) for parts in zip(*rows, strict=True)),
            scale=None if after[1].norm is None else after[1].norm.scale,
            relu=after[0].relu and after[1].relu,
            shifts=bias is not None or after[1].norm is not None,
        )
        found = regression.solve(weight.reshape(len(weight), -1), bias)
        self.result.errors[dense.weight] = (found.before, found.after)
        if found.change is None:
            return
        self._set(dense.weight, weight + found.change.reshape(weight.shape))
        if bias is not None and dense.bias is not None:
            self._set(dense.bias, bias + found.shift)
        elif after[1].norm is not None:
            mean = self._weights["small"][after[1].norm.running_mean]
            self._set(after[1].norm.running_mean, mean - found.shift)

    def _set(self, name: str, value: Tensor) -> None:
        value = value.to(self._weights["small"][name])
        self._weights["small"][name] = value
        self.result.weights[name] = value
        for node in self.small.nodes:
            mine = node in self._small and node.op == "placeholder"
            if mine and self.small.weights.get(captured_name(node)) == name:
                self._small[node] = [value] * len(self._inputs["small"])

    def _rows(
        self,
        node: fx.Node,
        twin: fx.Node,
        dense: Dense,
        kept: Tensor,
        after: tuple[Following, Following],
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Per batch, sampled: inputs of the small layer, what its output goes on to be in the full
        network, and what is added to it in the small one."""
        chunks = len(self._full[node])
        fair = min(_ROWS, _WORK // dense.unknowns)
        wanted = max(fair, _LEAST_ROWS + dense.unknowns) if dense.groups == 1 else _ROWS_GROUPED
        others = self._others(node, after)
        for chunk in range(chunks):
            (operand, *_), _ = self._arguments(twin, "small", chunk)
            target = self._full[node][chunk]
            at = dense.positions(operand, -(-wanted // chunks), self._generator)
            X = dense.inputs(operand, at)
            wish = dense.outputs(target, at)[:, kept.to(target.device)]
            offset = torch.zeros_like(wish)
            full, small = after[0].norm, after[1].norm
            if full is not None and small is not None:
                wish = wish * full.scale[kept].to(wish) + full.shift[kept].to(wish)
                offset = offset + small.shift.to(wish)
            if others is not None:
                theirs, ours = self._full[others[0]][chunk], self._small[others[1]][chunk]
                wish = wish + dense.outputs(theirs, at)[:, kept.to(target.device)]
                offset = offset + dense.outputs(ours, at)
            yield X, wish, offset

    def _others(
        self, node: fx.Node, after: tuple[Following, Following]
    ) -> tuple[fx.Node, fx.Node] | None:
        """The other summand in both networks, where it is known by now and of the same shape."""
        theirs, ours = after[0].other, after[1].other
        if theirs is None or ours is None:
            return None
        if theirs not in self._full or ours not in self._small:
            return None
        if self._full[theirs][0].shape != self._full[node][0].shape:
            return None
        return theirs, ours


def _same_operators(full: Graph, small: Graph) -> bool:
    return [(n.op, str(n.target) if n.op == "call_function" else "") for n in full.nodes] == [
        (n.op, str(n.target) if n.op == "call_function" else "") for n in small.nodes
    ]


def _uses(graph: Graph) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "placeholder" and (name := graph.weights.get(captured_name(node))):
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
