"""Recognise what follows a dense layer: a batch norm, an addition, an activation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from interpress.graph.activations import SWISH, Activation, activation_of, swish_of
from interpress.graph.program import Program, family

NO_EFFECT_IN_EVALUATION = ("aten.dropout", "aten.clone", "aten.alias", "aten.detach")


@dataclass(frozen=True)
class BatchNorm:
    """A batch norm in evaluation mode: `y -> scale * y + shift` per channel, in float64."""

    node: fx.Node
    scale: Tensor
    shift: Tensor
    running_mean: str
    """Name of the running mean's buffer."""

    def applied(self, rows: Tensor) -> Tensor:
        """Return rows (..., channels) of the norm's input as rows of its output."""
        return torch.addcmul(self.shift.to(rows), rows, self.scale.to(rows))


@dataclass(frozen=True)
class Epilogue:
    """The operators applied to a layer's output: a batch norm, an addition, an activation."""

    norm: BatchNorm | None
    summand: fx.Node | None
    """The value that the output is added to."""
    activation: Activation | None
    last: fx.Node
    """The last node of the epilogue, not counting the activation."""


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of an operator by name. Arguments left at their default are missing."""
    schema = getattr(node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema is not None else []
    return dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def batch_norm_after(
    program: Program, node: fx.Node, parameters: Mapping[str, Tensor]
) -> BatchNorm | None:
    """Return the batch norm that is the only user of a node, if it uses running statistics."""
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
    weight, bias = (program.weight_name(arguments[name]) for name in ("weight", "bias"))
    # A weight or bias that is computed, not stored, has no name.
    if (weight is None) != (arguments["weight"] is None) or (bias is None) != (
        arguments["bias"] is None
    ):
        return None
    scale = scale if weight is None else scale * parameters[weight].double()
    shift = -scale * parameters[mean].double()
    return BatchNorm(user, scale, shift if bias is None else shift + parameters[bias], mean)


def scaled_by_norm(
    program: Program, node: fx.Node, parameters: Mapping[str, Tensor], weight: Tensor
) -> Tensor:
    """Return the weight of a node (outputs, ...), scaled as the batch norm after it scales them."""
    norm = batch_norm_after(program, node, parameters)
    if norm is None:
        return weight
    return weight * norm.scale.to(weight).reshape(-1, *[1] * (weight.ndim - 1))


def epilogue_of(program: Program, node: fx.Node, parameters: Mapping[str, Tensor]) -> Epilogue:
    """Return the epilogue of a node. It ends where a value has more than one user."""
    norm = batch_norm_after(program, node, parameters)
    last = node if norm is None else norm.node
    operand, user = _only_user(last)
    summand = None
    if user is not None and family(user) in ("aten.add", "aten.add_"):
        addends = [arg for arg in user.args[:2] if arg is not operand]
        unscaled = user.kwargs.get("alpha", 1) == 1 and len(addends) == 1
        if unscaled and isinstance(addends[0], fx.Node):
            summand, last = addends[0], user
            operand, user = _only_user(user)
        else:
            user = None
    activation = None if user is None else activation_of(user)
    if user is None and operand.op == "call_function" and swish_of(operand) is not None:
        activation = SWISH
    return Epilogue(norm, summand, activation, last)


def _only_user(node: fx.Node) -> tuple[fx.Node, fx.Node | None]:
    """Return the only user of a node, and the operand through which it reads the node.

    Operators without an effect in evaluation mode are skipped. The user is None if there are
    several, or if it is the output of the program.
    """
    while len(node.users) == 1:
        (user,) = node.users
        if user.op != "call_function":
            return node, None
        if family(user) not in NO_EFFECT_IN_EVALUATION:
            return node, user
        node = user
    return node, None
