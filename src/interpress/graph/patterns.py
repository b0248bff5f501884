"""What happens to the output of a dense layer next: its batch norm, and the sum it goes into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from interpress.graph.program import Program


@dataclass(frozen=True)
class BatchNorm:
    """`y -> scale * y + shift` per channel, and the name of the mean it subtracts."""

    node: fx.Node
    scale: Tensor
    shift: Tensor
    running_mean: str


@dataclass(frozen=True)
class Epilogue:
    """What happens to an output: batch norm, a sum with another value, ReLU; any or none."""

    norm: BatchNorm | None
    other: fx.Node | None
    relu: bool
    last: fx.Node
    """The node that gives what the output has become, before the ReLU."""


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """The arguments of an operator node, by name."""
    schema = getattr(node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema is not None else []
    return dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def family(node: fx.Node) -> str:
    """`aten.conv2d` for `aten.conv2d.default`."""
    return str(node.target).rsplit(".", 1)[0]


def batch_norm_after(
    program: Program, node: fx.Node, parameters: Mapping[str, Tensor]
) -> BatchNorm | None:
    """The batch norm that alone reads a node's output, with statistics of its own."""
    if len(node.users) != 1:
        return None
    (user,) = node.users
    if user.op != "call_function" or family(user) != "aten.batch_norm":
        return None
    arguments = arguments_of(user)
    mean = program.weight_name(arguments["running_mean"])
    variance = program.weight_name(arguments["running_var"])
    if arguments["input"] is not node or arguments.get("training") or not mean or not variance:
        return None
    scale = torch.rsqrt(parameters[variance].double() + arguments["eps"])
    gain, bias = (program.weight_name(arguments[name]) for name in ("weight", "bias"))
    if (gain is None) != (arguments["weight"] is None) or (bias is None) != (
        arguments["bias"] is None
    ):
        return None
    scale = scale if gain is None else scale * parameters[gain].double()
    shift = -scale * parameters[mean].double()
    return BatchNorm(user, scale, shift if bias is None else shift + parameters[bias], mean)


_PASSING = ("aten.dropout", "aten.clone", "aten.alias", "aten.detach")


def epilogue_of(program: Program, node: fx.Node, parameters: Mapping[str, Tensor]) -> Epilogue:
    """What a node's output goes through next, as far as it alone does."""
    norm = batch_norm_after(program, node, parameters)
    end = node if norm is None else norm.node
    last, user = _next(end)
    other = None
    if user is not None and family(user) in ("aten.add", "aten.add_"):
        others = [arg for arg in user.args[:2] if arg is not last]
        plain = user.kwargs.get("alpha", 1) == 1 and len(others) == 1
        if plain and isinstance(others[0], fx.Node):
            other, end = others[0], user
            last, user = _next(user)
        else:
            user = None
    relu = user is not None and family(user) in ("aten.relu", "aten.relu_")
    return Epilogue(norm, other, relu, end)


def _next(node: fx.Node) -> tuple[fx.Node, fx.Node | None]:
    """The only user of a node, past what changes nothing in evaluation."""
    while len(node.users) == 1:
        (user,) = node.users
        if user.op != "call_function":
            return node, None
        if family(user) not in _PASSING:
            return node, user
        node = user
    return node, None
