"""A captured model as data: its operators in order, and where their tensors live."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from interpress.errors import DataError
from interpress.graph.example import Example
from interpress.graph.on_device import compute_device


@dataclass(frozen=True)
class Program:
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
    """Whether the example is the user's batch of one example, repeated twice."""

    def parameters(self) -> dict[str, Tensor]:
        """Return the model's parameters and buffers that the program uses, by name."""
        named = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        return {name: named[name].detach() for name in self.weights.values()}

    @property
    def device(self) -> torch.device:
        """Where the program computes."""
        return self.example.device or compute_device(self.model)

    @property
    def computes_elsewhere(self) -> bool:
        """Whether it computes on another device than the one its weights live on."""
        return self.example.device is not None

    @property
    def weight_bytes(self) -> int:
        """The size of all weights that the program uses."""
        return sum(t.numel() * t.element_size() for t in self.parameters().values())

    def output_nodes(self) -> list[fx.Node]:
        """Return the nodes that make the outputs, flat, in order."""
        leaves = pytree.tree_leaves(self.nodes[-1].args[0])
        return [leaf for leaf in leaves if isinstance(leaf, fx.Node)]

    def score_nodes(self) -> tuple[fx.Node, ...]:
        """Return the floating-point outputs, or the scores that integer outputs were made from."""
        scores: dict[fx.Node, None] = {}
        queue = self.output_nodes()
        visited = set(queue)
        while queue:
            node = queue.pop(0)
            if is_float_node(node):
                scores[node] = None
                continue
            fresh = [operand for operand in node.all_input_nodes if operand not in visited]
            visited.update(fresh)
            queue += fresh
        return tuple(scores)

    @cached_property
    def batch_symbols(self) -> frozenset[Any]:
        """The symbols that stand for the batch size: those of the inputs' first dims."""
        symbols: set[Any] = set()
        for node in self.nodes:
            value = node.meta.get("val")
            is_input = node.op == "placeholder" and captured_name(node) in self.inputs
            if is_input and isinstance(value, Tensor) and value.ndim:
                first: Any = value.shape[0]
                symbols |= set() if fixed_size(first) else first.node.expr.free_symbols
        return frozenset(symbols)

    @property
    def decides(self) -> bool:
        """Whether some output is a tensor of integers or booleans."""
        return any(is_float_node(node) is False for node in self.output_nodes())

    @property
    def autocasts(self) -> bool:
        """Whether some operator runs under autocast."""
        return any("autocast" in node.meta for node in self.nodes)

    @property
    def casts(self) -> bool:
        """Whether the model itself asks for a floating-point dtype somewhere."""
        return any(
            is_float_dtype(leaf)
            for node in self.nodes
            for leaf in pytree.tree_leaves((node.args, node.kwargs))
        )

    @cached_property
    def cast_nodes(self) -> Mapping[fx.Node, torch.dtype]:
        """The nodes that compute in a dtype that the model's code names, whatever its weights are.

        These are casts, and operators that read only what was cast.
        """
        found: dict[fx.Node, torch.dtype] = {}
        for node in self.operators():
            leaves = pytree.tree_leaves((node.args, node.kwargs))
            named = [leaf for leaf in leaves if is_float_dtype(leaf)]
            read = [found.get(n) for n in node.all_input_nodes if is_float_node(n)]
            if named:
                found[node] = named[0]
            elif is_float_node(node) and read and read[0] is not None and None not in read:
                found[node] = read[0]
        return found

    @property
    def writes_in_place(self) -> bool:
        """Whether some operator writes into one of its inputs."""
        return any(writes(node) for node in self.nodes)

    @cached_property
    def writes_through_views(self) -> bool:
        """Whether an in-place write changes a value that a later operator reads by another name.

        Example: `flat = h.view(-1)`, then `h.mul_(2)`, then a use of `flat`. Copying the written
        value would then change the result.
        """
        group = self._alias_groups()
        position = {node: index for index, node in enumerate(self.nodes)}
        readers: dict[fx.Node, list[fx.Node]] = {}
        for node in self.nodes:
            readers.setdefault(group[node], []).append(node)
        for write in filter(writes, self.nodes):
            for target in written_operands(write):
                for alias in readers[group[target]]:
                    later = any(position[user] > position[write] for user in alias.users)
                    if position[alias] < position[write] and later:
                        return True
        return False

    @cached_property
    def written_sources(self) -> frozenset[fx.Node]:
        """Inputs, weights and constants whose memory some operator writes into."""
        group = self._alias_groups()
        written = (group[t] for node in self.nodes if writes(node) for t in written_operands(node))
        return frozenset(node for node in written if node.op in ("placeholder", "get_attr"))

    def _alias_groups(self) -> dict[fx.Node, fx.Node]:
        """Per node, the first node whose memory it may share."""
        group: dict[fx.Node, fx.Node] = {}
        for node in self.nodes:
            is_view = may_alias(node) and node.all_input_nodes
            group[node] = group[node.all_input_nodes[0]] if is_view else node
        return group

    @cached_property
    def released_after(self) -> Mapping[fx.Node, tuple[fx.Node, ...]]:
        """Per node, the values that no later operator needs."""
        last: dict[fx.Node, fx.Node] = {}
        for node in self.nodes:
            last[node] = node
            for operand in node.all_input_nodes:
                last[operand] = node
        released: dict[fx.Node, tuple[fx.Node, ...]] = {}
        for operand, node in last.items():
            if node.op != "output":
                released[node] = (*released.get(node, ()), operand)
        return released

    def operators(self) -> Iterator[fx.Node]:
        """Yield the nodes that compute something."""
        return (node for node in self.nodes if node.op == "call_function")

    def weight_name(self, operand: Any) -> str | None:
        """Return the name of the parameter or buffer that an operand is, if it is one."""
        if not isinstance(operand, fx.Node) or operand.op != "placeholder":
            return None
        return self.weights.get(captured_name(operand))

    def flat_inputs(self, example: Any) -> list[Any]:
        """Return the inputs in the order of the program's placeholders, with shapes checked."""
        inputs = self.example if example is None else Example.of(example)
        leaves, spec = pytree.tree_flatten((inputs.args, dict(inputs.kwargs)))
        if len(leaves) != len(self.inputs):
            raise DataError(
                f"the model was captured with {len(self.inputs)} inputs "
                f"({', '.join(self.inputs)}), got {len(leaves)}; pass inputs of the same structure "
                "as the example"
            )
        if spec != self.in_spec and set(inputs.kwargs) == set(self.example.kwargs):
            ordered = {name: inputs.kwargs[name] for name in self.example.kwargs}
            leaves = pytree.tree_leaves((inputs.args, ordered))
        self._check_shapes(leaves)
        return leaves

    def _check_shapes(self, leaves: list[Any]) -> None:
        """Refuse inputs of a shape that the captured operators were not made for."""
        nodes = {captured_name(node): node for node in self.nodes if node.op == "placeholder"}
        for name, leaf in zip(self.inputs, leaves, strict=True):
            captured = nodes[name].meta.get("val")
            if not isinstance(leaf, Tensor) or not isinstance(captured, Tensor):
                continue
            expected = [fixed_size(size) for size in captured.shape]
            fits = len(expected) == leaf.ndim and all(
                size in (None, actual) for size, actual in zip(expected, leaf.shape, strict=True)
            )
            if not fits:
                shown = ", ".join("any" if size is None else str(size) for size in expected)
                raise DataError(
                    f"input {name!r} has shape {tuple(leaf.shape)}, but the model was captured for "
                    f"({shown}); give inputs of that shape: pad or crop all batches to one shape"
                )


def writes(node: fx.Node) -> bool:
    """Return whether an operator writes into one of its inputs."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def written_operands(node: fx.Node) -> list[fx.Node]:
    """Return the operands that an in-place operator overwrites."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return []
    values = dict(zip((a.name for a in schema.arguments), node.args, strict=False))
    values |= node.kwargs
    return [
        operand
        for argument in schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
        for operand in [values.get(argument.name)]
        if isinstance(operand, fx.Node)
    ]


def may_alias(node: fx.Node) -> bool:
    """Return whether the result of an operator may share the memory of its first input."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return node.op == "call_function"  # a getitem of a split, or a Python function
    return any(result.alias_info is not None for result in schema.returns)


def is_float_node(node: fx.Node) -> bool | None:
    """Return whether a node is a floating-point tensor; None if it is no tensor at all."""
    value = node.meta.get("val")
    return value.is_floating_point() if isinstance(value, Tensor) else None


def is_plain_integer(leaf: Any) -> bool:
    """Return whether an argument is an integer, and no truth value or symbol."""
    return type(leaf) is int


def is_float_dtype(leaf: Any) -> bool:
    """Return whether an argument is a floating-point dtype."""
    return isinstance(leaf, torch.dtype) and leaf.is_floating_point


def fixed_size(size: Any) -> int | None:
    """Return a captured size as a number, or None where torch.export left it open."""
    if isinstance(size, int):
        return size
    return size.node.maybe_as_int()


def depends_on(size: Any, symbols: frozenset[Any]) -> bool:
    """Return whether a size that torch.export left open depends on one of these symbols."""
    return fixed_size(size) is None and bool(size.node.expr.free_symbols & symbols)


def usual_size(size: Any) -> int:
    """Return a captured size as a number; where it was left open, that of the example."""
    fixed = fixed_size(size)
    return int(size.node.hint or 1) if fixed is None else fixed


def captured_name(node: fx.Node) -> str:
    """Return a placeholder's name in the exported program."""
    return str(node.meta.get("captured", node.name))


def module_of(node: fx.Node) -> str:
    """Return the name of the innermost module whose forward made this node."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return next((name for name, _ in reversed(stack) if "metadata_hook" not in name), "")


def family(node: fx.Node) -> str:
    """Return an operator's name without its overload: `aten.conv2d` for `aten.conv2d.default`."""
    return str(node.target).rsplit(".", 1)[0]
