"""Follow the channels of a captured program: run it once and label every value."""

from __future__ import annotations

import operator
from typing import Any

from torch import Tensor, fx
from torch.utils import _pytree as pytree

from interpress.graph.executor import Executor
from interpress.graph.program import Program, captured_name, depends_on
from interpress.labels.labelling import tidy
from interpress.labels.trace import Op, Trace, Value, is_value
from interpress.ops.registry import apply_rule


def follow(program: Program) -> Trace:
    """Run the program on its example and return the labels of every value."""
    trace = Trace(program)
    values: dict[fx.Node, Any] = {}
    parameters = program.parameters()

    def label(node: fx.Node, result: Any) -> None:
        if node.op == "placeholder":
            values[node] = _label_placeholder(trace, node, result, parameters)
        elif node.op == "call_function":
            values[node] = _label_operator(trace, node, result, values)
        else:
            values[node] = _without_labels(result)

    outputs = Executor(program).run(after=label)
    trace.finite = not any(t.is_floating_point() and bool(t.isnan().any()) for t in outputs)
    output_values = fx.node.map_arg(program.nodes[-1].args[0], values.__getitem__)
    for value in pytree.tree_leaves(output_values, is_leaf=is_value):
        if is_value(value):
            trace.outputs.append(value)
            for labelling in value.labellings:
                trace.freeze(labelling.labels, "it is an output of the model")
    return trace


def _label_placeholder(
    trace: Trace, node: fx.Node, tensor: Any, parameters: dict[str, Tensor]
) -> Any:
    """Return the value of a placeholder. A weight gets new labels for each of its dims."""
    name = trace.program.weights.get(captured_name(node))
    if name is None:
        value = _without_labels(tensor)
        if isinstance(value, Value):
            (value.varying,) = _varying_dims(trace.program, node, 1)
        return value
    if name not in trace.weights:
        shape = tuple(parameters[name].shape)
        trace.weights[name] = Value(
            shape, trace.fresh_labellings(shape), weight=name, itemsize=tensor.element_size()
        )
    return trace.weights[name]


def _label_operator(trace: Trace, node: fx.Node, result: Any, values: dict[fx.Node, Any]) -> Any:
    """Return the result of an operator with tensors replaced by labelled values."""
    tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
    if not tensors:
        return result
    arguments: Any = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    args, kwargs = arguments
    op = Op(node, _arguments_by_name(node, args, kwargs), trace)
    if node.target is operator.getitem:
        sequence, index = args
        return sequence[index]
    trace.ops.append(op)
    labellings_by_output = apply_rule(op, tensors)
    varying = _varying_dims(trace.program, node, len(tensors))
    op.outputs = [
        Value(tuple(t.shape), tidy(labellings), op=op, itemsize=t.element_size(), varying=dims)
        for t, labellings, dims in zip(tensors, labellings_by_output, varying, strict=True)
    ]
    outputs = iter(op.outputs)
    return pytree.tree_map(lambda leaf: next(outputs) if isinstance(leaf, Tensor) else leaf, result)


def _varying_dims(program: Program, node: fx.Node, count: int) -> list[frozenset[int]]:
    """Return, for each of `count` outputs, the dims whose size depends on the batch size."""
    recorded = pytree.tree_leaves(node.meta.get("val"))
    shapes = [tuple(leaf.shape) for leaf in recorded if isinstance(leaf, Tensor)]
    if len(shapes) != count:
        return [frozenset()] * count
    batch = program.batch_symbols
    return [frozenset(d for d, n in enumerate(s) if depends_on(n, batch)) for s in shapes]


def _arguments_by_name(node: fx.Node, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return all arguments by name, defaults included. Without a schema, names are positions."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {str(index): arg for index, arg in enumerate(args)} | dict(kwargs)
    names = [argument.name for argument in schema.arguments]
    defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    return defaults | dict(zip(names, args, strict=False)) | dict(kwargs)


def _without_labels(result: Any) -> Any:
    """Return an input or constant of the program as values that belong to no channel."""
    return pytree.tree_map(
        lambda leaf: (
            Value(tuple(leaf.shape), itemsize=leaf.element_size())
            if isinstance(leaf, Tensor)
            else leaf
        ),
        result,
    )
