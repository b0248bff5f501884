"""Element-wise arithmetic and comparisons of two and more tensors."""

from __future__ import annotations

import functools
import operator as python
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from interpress.onnx_files.call import Call, aten
from interpress.onnx_files.registry import operator

_BINARY = {
    "Sub": python.sub, "Mul": python.mul, "Equal": python.eq, "Greater": python.gt,
    "GreaterOrEqual": python.ge, "Less": python.lt, "LessOrEqual": python.le,
}  # fmt: skip


def _binary(function: Any) -> Callable[[Call], Any]:
    def read(call: Call) -> Any:
        _check_broadcast(call)
        return call.run(function, call.operand(0), call.operand(1))

    return read


for _name, _function in _BINARY.items():
    operator(_name)(_binary(_function))


_LOGICAL = {
    "And": aten.logical_and.default, "Or": aten.logical_or.default, "Xor": aten.logical_xor.default,
}  # fmt: skip


@operator(*_LOGICAL)
def logical(call: Call) -> Any:
    """Read `And`, `Or` and `Xor`."""
    return call.run(_LOGICAL[call.node.op_type], call.tensor(0), call.tensor(1))


def _check_broadcast(call: Call) -> None:
    if call.attribute("broadcast", 0):
        call.refuse("it broadcasts as before opset 7; convert the file to a newer opset")


@operator("Add")
def add(call: Call) -> Any:
    """Read `Add`."""
    _check_broadcast(call)
    for product, bias in ((0, 1), (1, 0)):
        layer = _layer_without_bias(call, product)
        constant = call.constant(bias)
        if layer is not None and constant is not None and constant.ndim == 1:
            weight = layer.args[1]
            assert isinstance(weight, fx.Node)
            columns = call.shape(product)
            if columns is not None and columns[-1] == len(constant):
                tracer = call.inputs[product].tracer
                x: Any = layer.args[0]
                operands = [fx.Proxy(node, tracer) for node in (x, weight)]
                return call.run(aten.linear.default, *operands, call.tensor(bias))
    return call.run(python.add, call.operand(0), call.operand(1))


def _layer_without_bias(call: Call, position: int) -> fx.Node | None:
    """Return the linear layer that computes an input, if it is read only here and has no bias."""
    value = call.inputs[position]
    if not isinstance(value, fx.Proxy) or not call.is_single_use(call.node.input[position]):
        return None
    node = value.node
    return node if node.target is aten.linear.default and len(node.args) == 2 else None


@operator("Div")
def divide(call: Call) -> Any:
    """Read `Div`."""
    _check_broadcast(call)
    a, b = call.operand(0), call.operand(1)
    if any(call.is_integer(position) for position in (0, 1)):
        return call.run(torch.div, a, b, rounding_mode="trunc")
    return call.run(python.truediv, a, b)


@operator("Pow")
def power(call: Call) -> Any:
    """Read `Pow`."""
    _check_broadcast(call)
    if call.is_integer(0) and not call.is_integer(1):
        call.refuse("it raises whole numbers to a power that is not whole")
    return call.run(python.pow, call.operand(0), call.operand(1))


@operator("Mod")
def modulo(call: Call) -> Any:
    """Read `Mod`."""
    function = torch.fmod if call.attribute("fmod", 0) else torch.remainder
    return call.run(function, call.tensor(0), call.operand(1))


@operator("Max", "Min", "Sum", "Mean")
def several(call: Call) -> Any:
    """Read `Max`, `Min`, `Sum` and `Mean`."""
    functions = {"Max": torch.maximum, "Min": torch.minimum}
    function = functions.get(call.node.op_type, python.add)
    operands = [call.tensor(position) for position in range(len(call.inputs))]
    total = functools.reduce(functools.partial(call.run, function), operands)
    if call.node.op_type == "Mean":
        return call.run(python.truediv, total, len(operands))
    return total


@operator("Where")
def where(call: Call) -> Any:
    """Read `Where`."""
    return call.run(aten.where.self, call.tensor(0), call.tensor(1), call.tensor(2))
