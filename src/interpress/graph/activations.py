"""Recognise the activation function that follows a layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, fx

from interpress.graph.program import family

_PIECEWISE = {
    "aten.relu": (0.0, math.inf),
    "aten.relu6": (0.0, 6.0),
    "aten.hardsigmoid": (-3.0, 3.0),
}
"""Activations that are linear between two bounds and constant outside, with these bounds."""
_SMOOTH = (
    "aten.silu",
    "aten.gelu",
    "aten.hardswish",
    "aten.sigmoid",
    "aten.tanh",
    "aten.leaky_relu",
    "aten.elu",
    "aten.selu",
    "aten.celu",
    "aten.mish",
    "aten.softplus",
)


@dataclass(frozen=True)
class Activation:
    """A function of single numbers, applied to the output of a layer."""

    name: str
    apply: Callable[[Tensor], Tensor]
    bounds: tuple[float, float] | None = None
    """It is linear between these inputs and constant outside, like ReLU; None if it is not."""


def activation_of(node: fx.Node) -> Activation | None:
    """Return the activation that an operator is."""
    if node.op != "call_function":
        return None
    name = family(node).removesuffix("_")
    rest = node.args[1:]
    if any(isinstance(argument, fx.Node) for argument in [*rest, *node.kwargs.values()]):
        return None

    def apply(values: Tensor) -> Tensor:
        values = values.clone() if family(node).endswith("_") else values
        return node.target(values, *rest, **node.kwargs)  # type: ignore[operator]

    if name in _PIECEWISE:
        return Activation(name, apply, _PIECEWISE[name])
    if name in ("aten.hardtanh", "aten.clamp"):
        return Activation(name, apply, _bounds(name, rest))
    return Activation(name, apply) if name in _SMOOTH else None


def swish_of(node: fx.Node) -> fx.Node | None:
    """Return the product `x * sigmoid(x)` of a node `x`, if these are its only users."""
    users = [user for user in node.users if user.op == "call_function"]
    gates = [user for user in users if family(user).removesuffix("_") == "aten.sigmoid"]
    products = [user for user in users if family(user).removesuffix("_") == "aten.mul"]
    if len(node.users) != 2 or len(gates) != 1 or len(products) != 1:
        return None
    (gate,), (product,) = gates, products
    same = set(product.args[:2]) == {node, gate} and set(gate.users) == {product}
    return product if same else None


SWISH = Activation("aten.silu", torch.nn.functional.silu)


def _bounds(name: str, arguments: tuple[object, ...]) -> tuple[float, float]:
    default = (-1.0, 1.0) if name == "aten.hardtanh" else (None, None)
    low, high = [*arguments, *default[len(arguments) :]][:2]
    return (
        -math.inf if low is None else float(low),
        math.inf if high is None else float(high),
    )
