"""Follow the channels of a captured program: run it once and label every value."""

from __future__ import annotations

import operator
from typing import Any

from torch import Tensor, fx
from torch.utils import _pytree as pytree

from interpress.graph.executor import Executor
from interpress.graph.program import Program, captured_name, fixed_size
from interpress.labels.labelling import tidy
from interpress.labels.trace import Op, Trace, Value, is_value
from interpress.ops.registry import apply_rule


def follow(program: Program) -> Trace:
    """Run the graph on its example and label every value."""
    trace = Trace(program)
    values: dict[fx.Node, Any] = {}
    parameters = program.parameters()

    def see(node: fx.Node, result: Any) -> None:
        if node.op == "placeholder":
            values[node] = _placeholder(trace, node, result, parameters)
        elif node.op == "call_function":
            values[node] = _operator(trace, node, result, values)
        else:
            values[node] = _plain(result)

    trace.finite = not any(
        t.is_floating_point() and bool(t.isnan().any()) for t in Executor(program).run(after=see)
    )
    output = program.nodes[-1]
    leaves = pytree.tree_leaves(
        fx.node.map_arg(output.args[0], values.__getitem__), is_leaf=is_value
    )
    for value in leaves:
        if is_value(value):
            trace.outputs.append(value)
            for labelling in value.labellings:
                trace.freeze(labelling.labels, "it is an output of the model")
    return trace


def _placeholder(trace: Trace, node: fx.Node, tensor: Any, parameters: dict[str, Tensor]) -> Any:
    name = trace.program.weights.get(captured_name(node))
    if name is None:
        value = _plain(tensor)
        if isinstance(value, Value):
            (value.varying,) = _varying(node, 1)
        return value
    if name not in trace.weights:
        shape = tuple(parameters[name].shape)
        trace.weights[name] = Value(
            shape, trace.fresh_layers(shape), weight=name, itemsize=tensor.element_size()
        )
    return trace.weights[name]


def _operator(trace: Trace, node: fx.Node, result: Any, values: dict[fx.Node, Any]) -> Any:
    tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
    if not tensors:
        return result
    arguments: Any = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    args, kwargs = arguments
    op = Op(node, _bind(node, args, kwargs), trace)
    if node.target is operator.getitem:
        values_of, index = args
        return values_of[index]
    trace.ops.append(op)
    labellings = apply_rule(op, tensors)
    varying = _varying(node, len(tensors))
    op.outputs = [
        Value(tuple(t.shape), tidy(own), op=op, itemsize=t.element_size(), varying=dims)
        for t, own, dims in zip(tensors, labellings, varying, strict=True)
    ]
    outputs = iter(op.outputs)
    return pytree.tree_map(lambda leaf: next(outputs) if isinstance(leaf, Tensor) else leaf, result)


def _varying(node: fx.Node, count: int) -> list[frozenset[int]]:
    """Per output, the dims that torch.export left open."""
    recorded = pytree.tree_leaves(node.meta.get("val"))
    shapes = [tuple(leaf.shape) for leaf in recorded if isinstance(leaf, Tensor)]
    if len(shapes) != count:
        return [frozenset()] * count
    return [frozenset(d for d, n in enumerate(s) if fixed_size(n) is None) for s in shapes]


def _bind(node: fx.Node, args: Any, kwargs: Any) -> dict[str, Any]:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {str(index): arg for index, arg in enumerate(args)} | dict(kwargs)
    names = [argument.name for argument in schema.arguments]
    defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    return defaults | dict(zip(names, args, strict=False)) | dict(kwargs)


def _plain(result: Any) -> Any:
    """Values of a graph input or constant: no channel of any weight."""
    return pytree.tree_map(
        lambda leaf: (
            Value(tuple(leaf.shape), itemsize=leaf.element_size())
            if isinstance(leaf, Tensor)
            else leaf
        ),
        result,
    )
