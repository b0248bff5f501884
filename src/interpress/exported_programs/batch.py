"""Programs that were exported for one batch size are read for any, where that is right.

`torch.export.export(model, (images,))` writes the batch size into the graph: a view of 8 images
has an 8 among its sizes. The graph is run with a batch of another size, node by node. Where sizes
are given, the one that holds the batch is found from the shapes that arrive, and follows the input
from then on. Whether that was right is tried at the end: the changed network must treat two
batches as the exported one treats each of them.
"""

from __future__ import annotations

import copy
import math
import operator
import warnings
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from interpress.exported_programs.inputs import input_values, random_inputs, sizes_to_try
from interpress.graph.batch_size import same_for_each_batch
from interpress.graph.example import Example
from interpress.graph.recorded_shapes import RecordedShapes

_RESHAPING = ("view", "reshape", "_unsafe_view", "view_copy")
_SIZES = ("size", "sizes", "shape", "repeats")
"""The arguments that give the sizes of an operator's result."""


def without_fixed_batch(network: fx.GraphModule, program: ExportedProgram) -> fx.GraphModule:
    """Return a network that takes batches of any size, if that can be; else the network itself."""
    batch = _fixed_batch(program)
    if batch is None:
        return network
    sizes = sizes_to_try(program)
    batches = [random_inputs(program, sizes, seed) for seed in range(2)]
    if same_for_each_batch(network, network, batches):
        return network
    try:
        flexible = _flexible(network, batch, batches[0])
    except Exception:  # the graph cannot be run with another batch size, in whatever way
        return network
    return flexible if same_for_each_batch(network, flexible, batches) else network


def _fixed_batch(program: ExportedProgram) -> int | None:
    """Return the first size of all inputs, if it is the same number; None if it is free."""
    tensors = [value for value in input_values(program) if isinstance(value, Tensor)]
    first = [tensor.shape[0] if tensor.ndim else None for tensor in tensors]
    alike = {size if isinstance(size, int) else None for size in first}
    only = alike.pop() if len(alike) == 1 else None
    return only or None


def _flexible(network: fx.GraphModule, batch: int, example: Example) -> fx.GraphModule:
    """Return a copy whose sizes follow the batch size of its input."""
    leaves = pytree.tree_leaves((example.args, dict(example.kwargs)))
    doubled = [torch.cat([x, x]) if isinstance(x, Tensor) else x for x in leaves]
    recorded = RecordedShapes(network)
    with torch.no_grad():
        recorded.run(*leaves, enable_io_processing=False)
        search = _BatchSizes(network, batch, recorded.shapes)
        search.run(*doubled, enable_io_processing=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch copies its own old classes
        changed = copy.deepcopy(network)
    _write(changed.graph, search.changes, leaves)
    changed.recompile()
    return changed


class _BatchSizes(fx.Interpreter):
    """Runs a graph with twice the batch, and finds the sizes that have to follow it."""

    def __init__(
        self, network: fx.GraphModule, batch: int, shapes: dict[str, tuple[int, ...]]
    ) -> None:
        super().__init__(network)
        self.batch, self.shapes = batch, shapes
        self.changes: dict[str, tuple[str, int, int]] = {}
        """Per node, the argument, the place in it, and how often the batch goes into that size."""

    def run_node(self, node: fx.Node) -> Any:
        """Run one node, with the sizes that it must have."""
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        found = _sizes_of(node)
        if found is not None:
            name, index = found
            sizes = list(kwargs[name] if index is None else args[index])
            place = self._place(node, sizes)
            if place is not None and type(sizes[place]) is int and sizes[place] % self.batch == 0:
                self.changes[node.name] = (name, place, sizes[place] // self.batch)
                sizes[place] *= 2
                if index is None:
                    kwargs = {**kwargs, name: sizes}
                else:
                    args = (*args[:index], sizes, *args[index + 1 :])
        return getattr(self, node.op)(node.target, args, kwargs)

    def _place(self, node: fx.Node, sizes: list[Any]) -> int | None:
        """Return which of the sizes holds the batch; None if none does, or it follows by itself."""
        source = node.all_input_nodes[0] if node.all_input_nodes else None
        before = None if source is None else self.shapes.get(source.name)
        after = None if source is None else self.env.get(source)
        dim = None if before is None else _grown_dim(before, after)
        if dim is None:  # made from something else, such as a class token that is repeated
            return 0 if sizes and sizes[0] == self.batch else None
        assert before is not None
        if _name(node) in _RESHAPING:
            whole = math.prod(before)
            known = -math.prod(sizes)
            exact = [whole // known if size == -1 and known else size for size in sizes]
            outer = math.prod(before[:dim])
            fitting = (i for i in range(len(sizes)) if math.prod(exact[:i]) == outer)
            place = next(fitting, None)
        else:  # sizes of an expansion stand for the last dims
            place = dim + len(sizes) - len(before)
        return None if place is None or sizes[place] == -1 else place


def _grown_dim(before: tuple[int, ...], after: Any) -> int | None:
    """Return the dim that holds the batch: the one that is twice as long with twice the batch."""
    if not isinstance(after, Tensor) or len(before) != after.ndim:
        return None
    grown = [dim for dim, size in enumerate(before) if after.shape[dim] == 2 * size and size]
    return grown[0] if len(grown) == 1 else None


def _sizes_of(node: fx.Node) -> tuple[str, int | None] | None:
    """Return the name of the argument that gives sizes, and its position if it is positional."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or _name(node).startswith("slice"):
        return None
    for index, argument in enumerate(schema.arguments):
        if argument.name in _SIZES:
            given = index < len(node.args)
            value = node.args[index] if given else node.kwargs.get(argument.name)
            if isinstance(value, list | tuple):
                return argument.name, index if given else None
    return None


def _name(node: fx.Node) -> str:
    return str(node.target).split(".")[1] if "." in str(node.target) else str(node.target)


def _write(graph: fx.Graph, changes: dict[str, tuple[str, int, int]], leaves: list[Any]) -> None:
    """Let the sizes follow the batch size of the first input that is a tensor."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    first = next(n for n, leaf in zip(inputs, leaves, strict=True) if isinstance(leaf, Tensor))
    with graph.inserting_after(inputs[-1]):
        batch = graph.call_function(torch.ops.aten.sym_size.int, (first, 0))
    for node in list(graph.nodes):
        if node.name not in changes:
            continue
        name, place, factor = changes[node.name]
        with graph.inserting_before(node):
            size = graph.call_function(operator.mul, (batch, factor)) if factor > 1 else batch
        found = _sizes_of(node)
        assert found is not None
        index = found[1]
        sizes = list(node.kwargs[name] if index is None else node.args[index])
        sizes[place] = size
        if index is None:
            node.update_kwarg(name, sizes)
        else:
            node.update_arg(index, sizes)
