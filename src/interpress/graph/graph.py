"""The captured graph: nodes in order, where its tensors live, and a plain interpreter for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from interpress.errors import ArgumentError, DataError

Watch = Callable[[fx.Node, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True)
class Example:
    """Positional and keyword inputs of one forward call."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, example: Any) -> Example:
        """A tensor, a tuple or list of positional inputs, or a mapping of keyword inputs."""
        if isinstance(example, Example):
            return example
        if isinstance(example, Mapping):
            return cls((), {str(name): value for name, value in example.items()})
        if isinstance(example, tuple | list):
            return cls(tuple(example))
        if isinstance(example, Tensor):
            return cls((example,))
        raise ArgumentError(
            f"an example is a tensor, a tuple of inputs or a dict of keyword inputs, "
            f"not {type(example).__name__}"
        )

    def tensors(self) -> list[Tensor]:
        """Every tensor among the inputs."""
        return [
            leaf
            for leaf in pytree.tree_leaves((self.args, dict(self.kwargs)))
            if isinstance(leaf, Tensor)
        ]

    def map(self, change: Callable[[Tensor], Tensor]) -> Example:
        """The same inputs with every tensor changed."""
        args, kwargs = pytree.tree_map(
            lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf,
            (self.args, dict(self.kwargs)),
        )
        return Example(args, kwargs)

    def call(self, model: nn.Module) -> Any:
        """The model's output on these inputs."""
        return model(*self.args, **self.kwargs)


@dataclass(frozen=True)
class Graph:
    """A model's operators in order of execution, over parameters that keep their names."""

    nodes: tuple[fx.Node, ...]
    weights: Mapping[str, str]
    """Placeholder name to parameter or buffer name."""
    constants: Mapping[str, Any]
    """Placeholder name to a tensor that belongs to the program, not to the model."""
    inputs: tuple[str, ...]
    model: nn.Module
    example: Example
    in_spec: Any
    doubled: bool = False
    """Whether the example is the user's batch of one, twice."""

    def parameters(self) -> dict[str, Tensor]:
        """The model's parameters and buffers that the graph uses, by name."""
        named = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        return {name: named[name].detach() for name in self.weights.values()}

    def _fresh_parameters(self) -> dict[str, Tensor]:
        """As `parameters`, with buffers copied, because a forward may write into those."""
        buffers = {name for name, _ in self.model.named_buffers()}
        named = self.parameters()
        return {name: t.clone() if name in buffers else t for name, t in named.items()}

    def run(
        self,
        example: Any = None,
        *,
        watch: Watch | None = None,
        see: Callable[[fx.Node, Any], None] | None = None,
        dtype: torch.dtype | None = None,
        before_decisions: bool = False,
        instead: Mapping[fx.Node, Callable[..., Any]] | None = None,
    ) -> list[Tensor]:
        """Execute the graph and return the output tensors, flat.

        `watch` may change the arguments of a node before it runs, `see` looks at its result.
        With `dtype` everything floating is computed in it. With `before_decisions`, an output
        that is not floating (a class, a mask) is replaced by the floating values it comes from.
        `instead` has other calls for some nodes.
        """
        others = {} if instead is None else instead

        def cast(tensor: Tensor) -> Tensor:
            return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor

        values: dict[fx.Node, Any] = {}
        weights = self._fresh_parameters()
        inputs = iter(self.flat_inputs(example))
        last_use = self.last_use()
        wanted = self._scores() if before_decisions and self.decides else ()
        scores: dict[fx.Node, Tensor] = {}
        for node in self.nodes:
            if node.op == "placeholder":
                name = captured_name(node)
                if name in self.weights:
                    value = cast(weights[self.weights[name]])
                elif name in self.constants:
                    value = self.constants[name]
                    value = cast(value) if isinstance(value, Tensor) else value
                else:
                    value = next(inputs)
                    value = cast(value) if isinstance(value, Tensor) else value
            elif node.op == "get_attr":
                value = node.meta["attribute"]
                value = cast(value) if isinstance(value, Tensor) else value
            elif node.op == "output":
                result: Any = fx.node.map_arg(node.args[0], values.__getitem__)
                if wanted:
                    return [scores[score] for score in wanted]
                return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
            else:
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                if dtype is not None:
                    args, kwargs = _retype((args, kwargs), dtype)
                if watch is not None:
                    args, kwargs = watch(node, args, kwargs)
                value = evaluate(node, args, kwargs, others.get(node))
            values[node] = value
            if node in wanted:
                scores[node] = value.clone()
            if see is not None:
                see(node, value)
            for done in last_use.get(node, ()):
                del values[done]
        raise AssertionError("a graph ends with its output node")

    def output_nodes(self) -> list[fx.Node]:
        """The nodes that make the outputs, flat, in order."""
        leaves = pytree.tree_leaves(self.nodes[-1].args[0])
        return [leaf for leaf in leaves if isinstance(leaf, fx.Node)]

    @property
    def decides(self) -> bool:
        """Whether some output is a tensor of whole numbers or truth values."""
        leaves = pytree.tree_leaves(self.nodes[-1].args[0])
        return any(isinstance(leaf, fx.Node) and _floats(leaf) is False for leaf in leaves)

    def _scores(self) -> tuple[fx.Node, ...]:
        """The floating values that outputs are, or were decided from."""
        found: dict[fx.Node, None] = {}
        queue = [n for n in pytree.tree_leaves(self.nodes[-1].args[0]) if isinstance(n, fx.Node)]
        seen = set(queue)
        while queue:
            node = queue.pop(0)
            if _floats(node):
                found[node] = None
                continue
            fresh = [operand for operand in node.all_input_nodes if operand not in seen]
            seen.update(fresh)
            queue += fresh
        return tuple(found)

    @property
    def autocasts(self) -> bool:
        """Whether some of it runs under autocast."""
        return any("autocast" in node.meta for node in self.nodes)

    @property
    def casts(self) -> bool:
        """Whether the model itself asks for a floating type somewhere."""
        return any(
            _is_float(leaf)
            for node in self.nodes
            for leaf in pytree.tree_leaves((node.args, node.kwargs))
        )

    def last_use(self) -> dict[fx.Node, list[fx.Node]]:
        """Per node, the values that nothing needs after it."""
        last: dict[fx.Node, fx.Node] = {}
        for node in self.nodes:
            last[node] = node
            for operand in node.all_input_nodes:
                last[operand] = node
        ends: dict[fx.Node, list[fx.Node]] = {}
        for operand, node in last.items():
            if node.op != "output":
                ends.setdefault(node, []).append(operand)
        return ends

    def _check_shapes(self, leaves: list[Any]) -> None:
        """Refuse inputs of a shape that the captured operators were not made for."""
        nodes = {captured_name(node): node for node in self.nodes if node.op == "placeholder"}
        for name, leaf in zip(self.inputs, leaves, strict=True):
            captured = nodes[name].meta.get("val")
            if not isinstance(leaf, Tensor) or not isinstance(captured, Tensor):
                continue
            expected = [fixed_size(size) for size in captured.shape]
            fits = len(expected) == leaf.ndim and all(
                size in (None, own) for size, own in zip(expected, leaf.shape, strict=True)
            )
            if not fits:
                shown = ", ".join("any" if size is None else str(size) for size in expected)
                raise DataError(
                    f"input {name!r} has shape {tuple(leaf.shape)}, but the model was captured for "
                    f"({shown}); give inputs of that shape: pad or crop all batches to one"
                )

    def flat_inputs(self, example: Any) -> list[Any]:
        """The inputs in the order of the graph's own, checked."""
        inputs = self.example if example is None else Example.of(example)
        tree = (inputs.args, dict(inputs.kwargs))
        leaves, spec = pytree.tree_flatten(tree)
        if len(leaves) != len(self.inputs):
            raise DataError(
                f"the graph takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), "
                f"got {len(leaves)}; pass inputs of the same structure as the example"
            )
        if spec != self.in_spec and set(inputs.kwargs) == set(self.example.kwargs):
            ordered = {name: inputs.kwargs[name] for name in self.example.kwargs}
            leaves = pytree.tree_leaves((inputs.args, ordered))
        self._check_shapes(leaves)
        return leaves


def _floats(node: fx.Node) -> bool | None:
    """Whether a node is a floating tensor; None if it is no tensor at all."""
    value = node.meta.get("val")
    return value.is_floating_point() if isinstance(value, Tensor) else None


def writes(node: fx.Node) -> bool:
    """Whether an operator writes into one of its inputs."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def evaluate(
    node: fx.Node, args: Any, kwargs: Any, instead: Callable[..., Any] | None = None
) -> Any:
    """The result of one operator, or of another call that gives the same."""
    with torch.no_grad(), _region(node):
        return (instead or _callable(node))(*args, **kwargs)


def _region(node: fx.Node) -> contextlib.AbstractContextManager[Any]:
    """The autocast region a node was captured in, if any."""
    options = node.meta.get("autocast")
    return contextlib.nullcontext() if options is None else torch.autocast(*options)


def _callable(node: fx.Node) -> Callable[..., Any]:
    assert callable(node.target)
    return node.target


def _retype(arguments: Any, dtype: torch.dtype) -> Any:
    """Tensors made or cast inside the graph follow the run's precision."""
    return pytree.tree_map(lambda leaf: dtype if _is_float(leaf) else leaf, arguments)


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, torch.dtype) and leaf.is_floating_point


def fixed_size(size: Any) -> int | None:
    """A captured size as a number, or None where torch.export left it open."""
    if isinstance(size, int):
        return size
    return size.node.maybe_as_int()


def captured_name(node: fx.Node) -> str:
    """A placeholder's name in the exported program."""
    return str(node.meta.get("captured", node.name))


def module_of(node: fx.Node) -> str:
    """The name of the innermost module whose forward made this node."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return next((name for name, _ in reversed(stack) if "metadata_hook" not in name), "")
