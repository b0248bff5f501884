"""A model as one flat graph of ATen operators. No other file knows torch.export."""

from __future__ import annotations

import dataclasses
import inspect
import operator
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram, export, register_dataclass
from torch.export.graph_signature import InputKind
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from interpress.errors import ArgumentError, CaptureError
from interpress.graph.example import Example
from interpress.graph.model_state import evaluation, restored_buffers, unwrap
from interpress.graph.program import Program

_TRANSPARENT = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}
"""Regions that only change a mode, and where their operands start: their bodies are inlined."""


def capture(model: nn.Module, example: Any) -> Program:
    """Capture `model` in evaluation mode, as it runs on `example`.

    `example` is a tensor, a tuple of positional inputs, or a mapping of keyword inputs. The first
    dim of every input tensor may vary afterwards where the model allows it. The model's mode,
    hooks and parameters are left as they were.
    """
    network = unwrap(model)
    inputs = Example.of(example)
    _check(network, inputs)
    with evaluation(network), restored_buffers(network), torch.random.fork_rng(), torch.no_grad():
        captured = _two_examples(network, inputs)
        program = _export(network, captured)
    graph = _to_program(network, program, captured)
    return dataclasses.replace(graph, doubled=captured is not inputs)


def _check(model: nn.Module, example: Example) -> None:
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if is_lazy(tensor):
            raise CaptureError(
                f"parameter {name!r} has no shape yet (a lazy module); run the model once on an "
                "example first"
            )
        if tensor.is_meta:
            raise CaptureError(
                f"{name!r} is on the meta device and has no values; load the weights first, "
                "e.g. model.to_empty(device='cpu') and then load_state_dict"
            )
    for name, module in model.named_modules():
        if hasattr(module, "parametrizations"):
            tensors = ", ".join(module.parametrizations)
            raise CaptureError(
                f"module {name!r} computes its {tensors} by a parametrization; bake it in with "
                "torch.nn.utils.parametrize.remove_parametrizations(module, tensor_name) first"
            )
        hooks = [type(hook).__name__ for hook in module._forward_pre_hooks.values()]
        if {"WeightNorm", "SpectralNorm"} & set(hooks):
            raise CaptureError(
                f"module {name!r} computes its weight in a {hooks[0]} hook; bake it in with "
                "torch.nn.utils.remove_weight_norm or remove_spectral_norm first"
            )
    if not example.tensors():
        raise ArgumentError("the example holds no tensor; pass what the model's forward takes")


def _two_examples(model: nn.Module, example: Example) -> Example:
    """A batch of one is doubled, because torch.export takes a size of one for a constant."""
    sizes = {tensor.shape[0] if tensor.ndim else 0 for tensor in example.tensors()}
    if sizes != {1}:
        return example
    doubled = example.map(lambda tensor: torch.cat([tensor, tensor]))
    try:
        doubled.call(model)
    except Exception:  # a network for single examples: capture it as that
        return example
    return doubled


def _export(model: nn.Module, example: Example) -> ExportedProgram:
    try:
        register_outputs(example.call(model))
        flexible = {"dynamic_shapes": _dynamic(model, example)}
    except Exception as problem:  # whatever the model's own code raises
        raise CaptureError(
            f"the model does not run on the example ({_first_line(problem)}); pass what its "
            "forward takes: a tensor, a tuple of positional inputs, or a dict of keyword inputs"
        ) from problem
    problems = []
    for options in (flexible, {}):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch.export's, about the inside of torch
                return export(model, example.args, dict(example.kwargs), strict=False, **options)
        except Exception as problem:  # torch.export raises many kinds
            problems.append(problem)
    raise CaptureError(
        f"torch.export could not capture {type(model).__name__}: {_first_line(problems[-1])}. "
        "Usual causes are Python branches or loops over tensor values; rewrite these with "
        "torch.where or shapes, or compress the submodule that has none"
    ) from problems[-1]


def register_outputs(output: Any) -> None:
    """Tell torch about dataclasses among a model's outputs, as torch.export asks for."""
    for leaf in pytree.tree_leaves(output):
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            register_dataclass(type(leaf))
            register_outputs(leaf)


def _dynamic(model: nn.Module, example: Example) -> Any:
    """Every input's first dim may vary where the model allows it."""

    def first_dim(leaf: Any) -> Any:
        return (
            {0: Dim.AUTO} if isinstance(leaf, Tensor) and leaf.ndim and leaf.shape[0] > 1 else None
        )

    bound = inspect.signature(model.forward).bind(*example.args, **example.kwargs)
    return {name: pytree.tree_map(first_dim, value) for name, value in bound.arguments.items()}


def _first_line(problem: BaseException) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return f"{type(problem).__name__}: {lines[0] if lines else ''}"[:300]


def _to_program(model: nn.Module, program: ExportedProgram, example: Example) -> Program:
    kinds = {
        spec.arg.name: (spec.kind, spec.target) for spec in program.graph_signature.input_specs
    }
    tensors = _Tensors.of(model, program)
    weights, constants, inputs = {}, {}, []
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        kind, target = kinds[node.name]
        if kind is InputKind.USER_INPUT:
            inputs.append(node.name)
        elif kind in (InputKind.PARAMETER, InputKind.BUFFER) and target in tensors.named:
            weights[node.name] = tensors.canonical(target)
        else:
            constants[node.name] = tensors.constants[target]
    return Program(
        nodes=tuple(_flatten(program.graph_module)),
        weights=weights,
        constants=constants,
        inputs=tuple(inputs),
        model=model,
        example=example,
        in_spec=program.call_spec.in_spec,
    )


@dataclass(frozen=True)
class _Tensors:
    """Where a captured tensor lives: in the model by name, or in the program as a constant."""

    named: Mapping[str, Tensor]
    constants: Mapping[str, Any]

    @classmethod
    def of(cls, model: nn.Module, program: ExportedProgram) -> _Tensors:
        named: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
        named |= dict(model.named_buffers(remove_duplicate=False))
        return cls(named, {**program.state_dict, **program.constants})

    def canonical(self, name: str) -> str:
        """The first of the names of a shared tensor."""
        tensor = self.named[name]
        return next(other for other, candidate in self.named.items() if candidate is tensor)


def _flatten(module: fx.GraphModule) -> list[fx.Node]:
    """The nodes of the graph with mode-changing regions inlined."""
    flat = fx.Graph()
    _copy_into(flat, module, None, None)
    for node in reversed(list(flat.nodes)):  # checks of the captured types, which may change
        if not node.users and "_assert_tensor_metadata" in str(node.target):
            flat.erase_node(node)
    used = {operand for node in flat.nodes for operand in node.all_input_nodes}
    return [node for node in flat.nodes if node.op != "get_attr" or node in used]


def _copy_into(
    flat: fx.Graph, module: fx.GraphModule, operands: list[Any] | None, autocast: Any
) -> Any:
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
            inner = [
                copies[arg] if isinstance(arg, fx.Node) else arg for arg in node.args[start + 1 :]
            ]
            region = node.args[:4] if "autocast" in node.target._name else autocast
            copies[node] = _copy_into(flat, body, inner, region)
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
