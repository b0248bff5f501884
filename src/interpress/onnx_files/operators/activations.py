"""Activation functions."""

from __future__ import annotations

import operator as python
from collections.abc import Callable
from typing import Any

import torch

from interpress.onnx_files.call import Call, aten
from interpress.onnx_files.registry import operator

_UNARY = {
    "Relu": aten.relu.default, "Sigmoid": aten.sigmoid.default, "Tanh": aten.tanh.default,
    "Erf": aten.erf.default, "Softplus": aten.softplus.default, "Exp": aten.exp.default,
    "Log": aten.log.default, "Sqrt": aten.sqrt.default, "Abs": aten.abs.default,
    "Neg": aten.neg.default, "Reciprocal": aten.reciprocal.default, "Floor": aten.floor.default,
    "Ceil": aten.ceil.default, "Round": aten.round.default, "Sin": aten.sin.default,
    "Cos": aten.cos.default, "Sign": aten.sign.default, "Not": aten.logical_not.default,
    "Mish": aten.mish.default, "HardSwish": aten.hardswish.default, "Identity": None,
    "Atan": aten.atan.default, "IsNaN": aten.isnan.default,
}  # fmt: skip


def _unary(function: Any) -> Callable[[Call], Any]:
    def read(call: Call) -> Any:
        return call.tensor(0) if function is None else call.run(function, call.tensor(0))

    return read


for _name, _function in _UNARY.items():
    operator(_name)(_unary(_function))


@operator("Dropout")
def dropout(call: Call) -> Any:
    """Read `Dropout`."""
    if len(call.node.output) > 1 and call.node.output[1]:
        call.refuse("its mask is read")
    training = call.constant(2)
    if call.has(2) and (training is None or bool(training)):
        call.refuse("it is or may be in training mode; export the network in evaluation mode")
    return call.tensor(0)


@operator("LeakyRelu")
def leaky_relu(call: Call) -> Any:
    """Read `LeakyRelu`."""
    return call.run(aten.leaky_relu.default, call.tensor(0), call.attribute("alpha", 0.01))


@operator("Elu")
def elu(call: Call) -> Any:
    """Read `Elu`."""
    return call.run(aten.elu.default, call.tensor(0), call.attribute("alpha", 1.0))


@operator("Celu")
def celu(call: Call) -> Any:
    """Read `Celu`."""
    return call.run(aten.celu.default, call.tensor(0), call.attribute("alpha", 1.0))


@operator("Selu")
def selu(call: Call) -> Any:
    """Read `Selu`."""
    if {"alpha", "gamma"} & call.attributes.keys():
        alpha, gamma = call.attribute("alpha", 1.6732632), call.attribute("gamma", 1.0507010)
        return call.run(aten.elu.default, call.tensor(0), alpha, gamma)
    return call.run(aten.selu.default, call.tensor(0))


@operator("Softsign")
def softsign(call: Call) -> Any:
    """Read `Softsign`."""
    return call.run(torch.nn.functional.softsign, call.tensor(0))


@operator("ThresholdedRelu")
def thresholded_relu(call: Call) -> Any:
    """Read `ThresholdedRelu`."""
    return call.run(aten.threshold.default, call.tensor(0), call.attribute("alpha", 1.0), 0.0)


@operator("Gelu", "com.microsoft.Gelu")
def gelu(call: Call) -> Any:
    """Read `Gelu` and `com.microsoft.Gelu`."""
    approximate = call.attribute("approximate", "none")
    return call.run(aten.gelu.default, call.tensor(0), approximate=approximate)


@operator("com.microsoft.QuickGelu")
def quick_gelu(call: Call) -> Any:
    """Read `com.microsoft.QuickGelu`."""
    x = call.tensor(0)
    scaled = call.run(python.mul, x, call.attribute("alpha", 1.702))
    return call.run(python.mul, x, call.run(aten.sigmoid.default, scaled))


@operator("Swish")
def swish(call: Call) -> Any:
    """Read `Swish`."""
    x, alpha = call.tensor(0), call.attribute("alpha", 1.0)
    scaled = x if alpha == 1.0 else call.run(python.mul, x, alpha)
    return call.run(python.mul, x, call.run(aten.sigmoid.default, scaled))


@operator("HardSigmoid")
def hard_sigmoid(call: Call) -> Any:
    """Read `HardSigmoid`."""
    alpha, beta = call.attribute("alpha", 0.2), call.attribute("beta", 0.5)
    line = call.run(python.add, call.run(python.mul, call.tensor(0), alpha), beta)
    return call.run(aten.clamp.default, line, 0.0, 1.0)


@operator("PRelu")
def prelu(call: Call) -> Any:
    """Read `PRelu`."""
    x, slope = call.tensor(0), call.tensor(1)
    positive = call.run(aten.relu.default, x)
    negative = call.run(python.sub, x, positive)
    return call.run(python.add, positive, call.run(python.mul, negative, slope))


@operator("Clip")
def clip(call: Call) -> Any:
    """Read `Clip`."""
    if call.opset < 11:
        low, high = call.attribute("min"), call.attribute("max")
    else:
        low, high = call.number(1), call.number(2)
    if low is None and high is None:
        return call.tensor(0)
    return call.run(aten.clamp.default, call.tensor(0), low, high)


@operator("Softmax", "LogSoftmax")
def softmax(call: Call) -> Any:
    """Read `Softmax` and `LogSoftmax`."""
    name = aten.softmax.int if call.node.op_type == "Softmax" else aten.log_softmax.int
    if call.opset >= 13:
        return call.run(name, call.tensor(0), call.attribute("axis", -1))
    axis = call.attribute("axis", 1)
    rank = call.rank(0)
    if axis % rank == rank - 1:
        return call.run(name, call.tensor(0), -1)
    # before opset 13, all dims from the axis on were one
    x = call.tensor(0)
    flat = call.run(name, call.run(aten.flatten.using_ints, x, axis % rank, -1), axis % rank)
    return call.run(aten.reshape.default, flat, [call.size(x, dim) for dim in range(rank)])
