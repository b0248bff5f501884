"""Capture a model as a flat list of ATen operators. Only this module uses torch.export."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import operator
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram, export, register_dataclass
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from interpress.errors import ArgumentError, CaptureError, InterpressError
from interpress.graph.capturable_part import advice, without_printed_graphs
from interpress.graph.composite_operators import as_composite
from interpress.graph.example import Example
from interpress.graph.flattened_products import as_linear_layers
from interpress.graph.global_settings import users_device, without_stack_traces
from interpress.graph.misfit import first_line, misfit
from interpress.graph.model_checks import check_model
from interpress.graph.model_state import evaluation, unwrap
from interpress.graph.on_device import common_device
from interpress.graph.open_keywords import named_keywords
from interpress.graph.program import Program
from interpress.graph.symbolic_len import symbolic_len
from interpress.graph.traced_nodes import restore_origins, with_steps

_EXPORTING = threading.Lock()  # torch.export keeps state of the whole process while it runs
_TRANSPARENT = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}
"""Operators that run a body in another mode, and the position of that body among the arguments.

The body is inlined; the arguments after it are its operands."""


def capture(model: nn.Module, example: Any) -> Program:
    """Return the program that `model` runs on `example` in evaluation mode.

    `example` is a tensor, a tuple of positional inputs, or a mapping of keyword inputs. The program
    accepts other batch sizes (the first dim of every input) if the model does, and other sizes of
    the dims that the example says are free. The model's modes,
    hooks, parameters and buffers are not changed.
    """
    network = unwrap(model)
    inputs = Example.of(example)
    check_model(network)
    if not inputs.tensors():
        raise ArgumentError("the example holds no tensor; pass what the model's forward takes")
    with evaluation(network), torch.random.fork_rng(), torch.no_grad():
        with evaluation(network):  # what the forward caches must not become a constant
            captured_inputs = _at_least_two_examples(network, inputs)
        exported = _export(network, captured_inputs)
    program = _to_program(network, exported, captured_inputs)
    return dataclasses.replace(program, doubled=captured_inputs is not inputs)


def _at_least_two_examples(model: nn.Module, example: Example) -> Example:
    """Double a batch of one, because torch.export treats a size of one as a constant."""
    sizes = {tensor.shape[0] if tensor.ndim else 0 for tensor in example.tensors()}
    if sizes != {1}:
        return example
    doubled = example.map(lambda tensor: torch.cat([tensor, tensor]))
    try:
        doubled.call(model)
    except Exception:  # the model accepts only a batch of one
        return example
    return doubled


def _export(model: nn.Module, example: Example) -> ExportedProgram:
    exported = _attempt(model, example)
    if isinstance(exported, ExportedProgram):
        return exported
    raise CaptureError(
        f"torch.export could not capture {type(model).__name__}: {first_line(exported)}. "
        + advice(model, example, exported, _can_export)
    ) from exported


def _can_export(model: nn.Module, example: Example) -> bool:
    try:
        return bool(example.tensors()) and isinstance(_attempt(model, example), ExportedProgram)
    except InterpressError:
        return False


def _attempt(model: nn.Module, example: Example) -> ExportedProgram | Exception:
    """Return the exported program, or why there is none."""
    try:
        with evaluation(model):
            register_outputs(example.call(model))
        model, example = _on_one_device(model, example)
        with named_keywords(model, example):
            flexible = {"dynamic_shapes": _dynamic_shapes(model, example)}
    except Exception as problem:  # the model's code may raise anything
        raise misfit(model, example, problem) from problem
    problems: list[Exception] = []
    for options in (flexible, {}):
        try:
            with (
                _EXPORTING,
                symbolic_len(),
                without_printed_graphs(),
                without_stack_traces.set_to(True),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")  # torch.export warns about torch's internals
                with (
                    users_device(), with_steps(model) as stepped, named_keywords(stepped, example)
                ):  # fmt: skip
                    args, kwargs = example.args, dict(example.kwargs)
                    return export(stepped, args, kwargs, strict=False, **options)
        except Exception as problem:  # torch.export raises many types
            problems.append(problem)
    return problems[-1]


def _on_one_device(model: nn.Module, example: Example) -> tuple[nn.Module, Example]:
    """Return the model and its inputs on one device.

    torch.export looks only at shapes. So if the weights live on several devices, it gets a copy of
    the model whose weights are memory that is never touched.
    """
    if example.device is None:
        return model, example
    tensors = [*model.parameters(), *model.buffers()]
    home = common_device(tensors)
    if home is None and tensors:
        home = torch.device("cpu")
        memo = {id(tensor): _without_values(tensor, home) for tensor in tensors}
        model = copy.deepcopy(model, memo)
    return model, example.map(lambda tensor: tensor.to(home))


def _without_values(tensor: Tensor, device: torch.device) -> Tensor:
    empty = torch.empty_like(tensor.detach(), device=device)
    is_parameter = isinstance(tensor, nn.Parameter)
    return nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty


def register_outputs(output: Any) -> None:
    """Register the dataclasses among a model's outputs, which torch.export requires.

    With a name, programs that return them can be saved too.
    """
    for leaf in pytree.tree_leaves(output):
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            kind = type(leaf)
            register_dataclass(kind, serialized_type_name=f"{kind.__module__}.{kind.__qualname__}")
            register_outputs(leaf)


def _dynamic_shapes(model: nn.Module, example: Example) -> Any:
    """Return the `dynamic_shapes` that let the first dim of every input and the free dims vary."""

    def open_dims(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.ndim or leaf.shape[0] <= 1:
            return None
        free = [dim for dim in example.free_dims if dim < leaf.ndim and leaf.shape[dim] > 1]
        return dict.fromkeys([0, *free], Dim.AUTO)

    bound = inspect.signature(model.forward).bind(*example.args, **example.kwargs)
    return {name: pytree.tree_map(open_dims, value) for name, value in bound.arguments.items()}


def _to_program(model: nn.Module, exported: ExportedProgram, example: Example) -> Program:
    specs = {
        spec.arg.name: (spec.kind, spec.target) for spec in exported.graph_signature.input_specs
    }
    tensors = _Tensors.of(model, exported)
    weights, constants, inputs = {}, {}, []
    for node in exported.graph.nodes:
        if node.op != "placeholder":
            continue
        kind, target = specs[node.name]
        if kind is InputKind.USER_INPUT:
            inputs.append(node.name)
        elif kind in (InputKind.PARAMETER, InputKind.BUFFER) and target in tensors.named:
            weights[node.name] = tensors.canonical(target)
        else:
            constants[node.name] = tensors.constants[target]
    return Program(
        nodes=tuple(_flatten(exported.graph_module, model)),
        weights=weights,
        constants=constants,
        inputs=tuple(inputs),
        model=model,
        example=example,
        in_spec=exported.call_spec.in_spec,
    )


@dataclass(frozen=True)
class _Tensors:
    """The tensors a program refers to: those of the model, by name, and its own constants."""

    named: Mapping[str, Tensor]
    constants: Mapping[str, Any]

    @classmethod
    def of(cls, model: nn.Module, exported: ExportedProgram) -> _Tensors:
        named: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
        named |= dict(model.named_buffers(remove_duplicate=False))
        return cls(named, {**exported.state_dict, **exported.constants})

    def canonical(self, name: str) -> str:
        """Return the first name of a tensor, which may have several if it is shared."""
        tensor = self.named[name]
        return next(alias for alias, candidate in self.named.items() if candidate is tensor)


def _flatten(module: fx.GraphModule, model: nn.Module) -> list[fx.Node]:
    """Return the nodes of a graph, with regions that only change a mode inlined."""
    flat = fx.Graph()
    _copy_into(flat, module, None, None)
    restore_origins(flat.nodes, model)
    # assertions about the captured dtypes would fail in a run with another dtype
    for node in reversed(list(flat.nodes)):
        if not node.users and "_assert_tensor_metadata" in str(node.target):
            flat.erase_node(node)
    as_composite(flat)
    as_linear_layers(flat)
    used = {operand for node in flat.nodes for operand in node.all_input_nodes}
    return [node for node in flat.nodes if node.op != "get_attr" or node in used]


def _copy_into(
    flat: fx.Graph, module: fx.GraphModule, operands: list[Any] | None, autocast: Any
) -> Any:
    """Append the nodes of `module` to `flat` and return the outputs.

    `operands` replace the placeholders of an inlined body. For the whole graph they are None: its
    placeholders are copied. Every copied operator remembers the autocast region it ran in.
    """
    copies: dict[fx.Node, Any] = {}
    remaining = iter(operands or [])
    for node in module.graph.nodes:
        if node.op == "placeholder" and operands is not None:
            copies[node] = next(remaining)
        elif node.op == "output":
            result = pytree.tree_map(
                lambda leaf: copies[leaf] if isinstance(leaf, fx.Node) else leaf, node.args[0]
            )
            return result if operands is not None else flat.output(result)
        elif _is_transparent(node):
            start = _TRANSPARENT[node.target._name]
            body = getattr(module, node.args[start].target)
            body_operands = [
                copies[arg] if isinstance(arg, fx.Node) else arg for arg in node.args[start + 1 :]
            ]
            region = node.args[:4] if "autocast" in node.target._name else autocast
            copies[node] = _copy_into(flat, body, body_operands, region)
        elif node.target is operator.getitem and isinstance(copies[node.args[0]], tuple | list):
            copies[node] = copies[node.args[0]][node.args[1]]
        else:
            copies[node] = flat.node_copy(node, copies.__getitem__)
            copies[node].meta["captured"] = node.name
            if autocast is not None and autocast[2]:
                copies[node].meta["autocast"] = autocast
            if node.op == "get_attr":
                copies[node].meta["attribute"] = getattr(module, node.target)
    return None


def _is_transparent(node: fx.Node) -> bool:
    return node.op == "call_function" and getattr(node.target, "_name", None) in _TRANSPARENT
