"""Read an exported program as an `fx.GraphModule` whose parameters have the program's names."""

from __future__ import annotations

import operator
import os
from pathlib import Path
from typing import Any

from torch import fx, nn
from torch.export import ExportedProgram

from interpress.errors import CaptureError
from interpress.exported_programs.archive import load_program
from interpress.exported_programs.batch import without_fixed_batch
from interpress.exported_programs.source import ExportedSource, attach

SUFFIX = ".pt2"
_TRAINING = {"batch_norm": "training", "dropout": "train"}
"""Operators that compute something else in training, and the argument that says so."""


def read_exported(program: ExportedProgram | str | os.PathLike[str]) -> fx.GraphModule:
    """Return the network of a `torch.export.ExportedProgram`, or of a `.pt2` file.

    It can be compressed like any other network; `Result.save_exported` writes the smaller one.
    Nothing in a file is unpickled or run. A program that was exported for one batch size is read
    for any, where that is right. The network computes the same in training mode, because the
    operators of a program are those of evaluation.
    """
    if isinstance(program, ExportedProgram):
        source = ExportedSource(program, "the exported program")
    else:
        loaded, extra = load_program(program)
        source = ExportedSource(loaded, str(program), extra)
    _check_evaluates(source)
    network = source.program.module(check_guards=False)
    assert isinstance(network, fx.GraphModule)
    for name in ("train", "eval"):  # torch lets them raise, and loses that in copies
        vars(network).pop(name, None)
    _tie(network)
    _separate_sizes(network)
    network = without_fixed_batch(network, source.program)
    attach(network, source)
    return network


def _tie(network: nn.Module) -> None:
    """Make names of the same memory one parameter again, as it was in the model."""
    first: dict[Any, nn.Parameter] = {}
    for module in network.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and parameter.numel():
                memory = (parameter.data_ptr(), parameter.shape, parameter.stride())
                module._parameters[name] = first.setdefault(memory, parameter)


def _separate_sizes(network: fx.GraphModule) -> None:
    """Give every use of a computed size a node of its own.

    `run_decompositions` computes a size such as `batch * 4` once for the whole network. The 4 can
    be the heads of one layer and the groups of another, which shrink separately.
    """
    graph = network.graph
    for node in reversed(list(graph.nodes)):
        for user in list(node.users)[1:] if node.target is operator.mul else ():
            with graph.inserting_before(node):
                user.replace_input_with(node, graph.node_copy(node))
    network.recompile()


def is_exported(model: Any) -> bool:
    """Return whether `model` is an exported program, or the path of a `.pt2` file."""
    if isinstance(model, str | os.PathLike):
        return Path(model).suffix.lower() == SUFFIX
    return isinstance(model, ExportedProgram)


def _check_evaluates(source: ExportedSource) -> None:
    """Refuse a program of a network in training mode, whose outputs depend on the batch."""
    for node in source.program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None:
            continue
        operator = schema.name.rpartition("::")[2]
        flag = next((flag for name, flag in _TRAINING.items() if name in operator), None)
        names = [argument.name for argument in schema.arguments]
        given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
        if flag is not None and given.get(flag) is True:
            raise CaptureError(
                f"{source.name} was exported in training mode ({node.name} has {flag}=True), so it "
                "computes something else than the trained network; call model.eval() before "
                "torch.export.export"
            )
