"""A dense layer of the smaller network beside the same layer of the original."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from interpress.graph.activations import Activation
from interpress.graph.dense import DenseLayer
from interpress.graph.normalised import normalised_value
from interpress.graph.patterns import Epilogue
from interpress.graph.program import Program, captured_name, fixed_size
from interpress.surgery.cut import Cut

Pairs = list[tuple[fx.Node, fx.Node]]
"""Operators of the full network, each with the same operator of the smaller one."""


@dataclass(frozen=True, eq=False)
class LayerPair:
    """A dense layer to refit."""

    small_node: fx.Node
    dense: DenseLayer
    """The layer of the smaller network."""
    kept: Tensor
    """Which outputs of the full layer it has."""
    full_epilogue: Epilogue
    small_epilogue: Epilogue
    summands: tuple[fx.Node, fx.Node] | None
    """What is added to its output in the full and in the smaller network, if already known."""

    @property
    def is_normalised(self) -> bool:
        """Whether a norm reads what the output and its summand become together."""
        return normalised_value(self.small_node) is self.small_epilogue.last

    @property
    def activation(self) -> Activation | None:
        """What both networks apply to the output, if the whole output is known by then."""
        full, small = self.full_epilogue, self.small_epilogue
        if full.activation is None or small.activation is None:
            return None
        return full.activation if full.activation.name == small.activation.name else None


def pairs_of(full: Program, small: Program) -> Pairs:
    """Return the operators of both networks, which run the same ones."""
    pairs = zip(full.nodes, small.nodes, strict=True)
    return [pair for pair in pairs if pair[0].op == "call_function"]


def stretches(pairs: Pairs, begins: Callable[[fx.Node], bool]) -> Iterator[Pairs]:
    """Yield some operators of both networks in stretches; `begins` gets the smaller one's node."""
    stretch: Pairs = []
    for full_node, small_node in pairs:
        if stretch and begins(small_node):
            yield stretch
            stretch = []
        stretch.append((full_node, small_node))
    yield stretch


def equal_values(full: Program, small: Program, changed: Collection[str]) -> set[fx.Node]:
    """Return the nodes of either program whose values are the same in both networks.

    `changed` names the weights that differ. The networks share these values. If in-place writes
    reach values through views, a shared value could not be protected by a copy, so each network
    computes its own.
    """
    equal: set[fx.Node] = set()
    if full.writes_through_views or small.writes_through_views:
        return equal
    for full_node, small_node in zip(full.nodes, small.nodes, strict=True):
        if full_node.op == "placeholder":
            same = full.weights.get(captured_name(full_node)) not in changed
        else:
            same = _constants(full_node) == _constants(small_node) and all(
                operand in equal for operand in full_node.all_input_nodes
            )
        if same:
            equal |= {full_node, small_node}
    return equal


def _constants(node: fx.Node) -> list[object]:
    """Return the arguments of an operator that are no values, such as the sizes of `zeros`."""
    leaves = pytree.tree_leaves((node.args, node.kwargs))
    return [leaf for leaf in leaves if not isinstance(leaf, fx.Node)]


def has_shape_of(summand: fx.Node, shape: Sequence[int], layer: fx.Node) -> bool:
    """Return whether a value of this shape is added to a layer's output element by element."""
    captured = [fixed_size(size) for size in layer.meta["val"].shape]
    # one of both may be the same for all examples, such as learned positions
    examples = fixed_size(summand.meta["val"].shape[0]) if shape else None
    return (
        len(shape) == len(captured)
        and examples == captured[0]
        and all(size in (None, own) for size, own in zip(captured[1:], shape[1:], strict=True))
    )


def kept_outputs(cut: Cut, weight: str | None, dim: int = 0) -> Tensor | None:
    """Return which outputs of a dense layer stay: those along this dim of its weight."""
    if weight is None or weight not in cut.spaces.trace.weights:
        return None
    stays: Tensor | None = None
    for labelling in cut.spaces.trace.weights[weight].channels():
        if labelling.support == (dim,):
            kept = cut.stays(labelling.labels).reshape(-1)
            stays = kept if stays is None else stays & kept
    return None if stays is None else torch.nonzero(stays).reshape(-1)
