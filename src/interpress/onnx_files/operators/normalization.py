"""Normalisation."""

from __future__ import annotations

import operator as python
from typing import Any

from torch import Tensor

from interpress.onnx_files.call import Call, aten
from interpress.onnx_files.registry import operator

_SMALLEST = 1e-30  # a norm that is not zero


@operator("BatchNormalization")
def batch_normalization(call: Call) -> Any:
    """Read `BatchNormalization`."""
    if call.attribute("training_mode", 0):
        call.refuse("it is in training mode; export the network in evaluation mode")
    if not call.attribute("spatial", 1):
        call.refuse("it has spatial=0, which normalises every pixel by itself")
    if call.constant(1) is None or call.constant(3) is None:
        call.refuse("its scale or mean is computed by the network")
    mean, variance = call.tensor(3, buffer=True), call.tensor(4, buffer=True)
    return call.run(
        aten.batch_norm.default, call.tensor(0), call.tensor(1), call.tensor(2), mean, variance,
        False, 0.1, call.attribute("epsilon", 1e-5), False,
    )  # fmt: skip


@operator("InstanceNormalization")
def instance_normalization(call: Call) -> Any:
    """Read `InstanceNormalization`."""
    return call.run(
        aten.instance_norm.default, call.tensor(0), call.tensor(1), call.tensor(2), None, None,
        True, 0.0, call.attribute("epsilon", 1e-5), False,
    )  # fmt: skip


@operator("LayerNormalization")
def layer_normalization(call: Call) -> Any:
    """Read `LayerNormalization`."""
    if len([name for name in call.node.output if name]) > 1:
        call.refuse("its mean or deviation is read")
    shape, scale = call.shape(0), call.constant(1)
    axis = call.attribute("axis", -1)
    if scale is not None:
        sizes = _normalized(call, scale, axis)
    elif shape is not None and all(size is not None for size in shape[axis:]):
        sizes = [int(size or 0) for size in shape[axis:]]
    else:
        call.refuse("the sizes that it normalises over are not known")
    return call.run(
        aten.layer_norm.default, call.tensor(0), sizes, call.tensor(1), call.tensor(2),
        call.attribute("epsilon", 1e-5),
    )  # fmt: skip


@operator("GroupNormalization")
def group_normalization(call: Call) -> Any:
    """Read `GroupNormalization`."""
    if call.opset < 21:
        call.refuse("before opset 21 its scale is per group; export it with opset 21")
    return call.run(
        aten.group_norm.default, call.tensor(0), call.attribute("num_groups"), call.tensor(1),
        call.tensor(2), call.attribute("epsilon", 1e-5),
    )  # fmt: skip


@operator("RMSNormalization")
def rms_normalization(call: Call) -> Any:
    """Read `RMSNormalization`."""
    scale = call.constant(1)
    if scale is None:
        call.refuse("its scale is computed by the network")
    return call.run(
        aten.rms_norm.default,
        call.tensor(0),
        _normalized(call, scale, call.attribute("axis", -1)),
        call.tensor(1),
        call.attribute("epsilon", 1e-5),
    )


def _normalized(call: Call, scale: Tensor, axis: int) -> list[int]:
    """Return the sizes of the dims that are normalised over, which are those of the scale."""
    count = -axis if axis < 0 else call.rank(0) - axis
    known = (call.shape(0) or ())[-count:]
    if count != scale.ndim:
        call.refuse(f"it normalises over {count} dims, but its scale has {scale.ndim}")
    if any(size not in (None, own) for size, own in zip(known, scale.shape, strict=False)):
        call.refuse(f"the sizes that it normalises over are {known}, not those of its scale")
    return [call.implied(size) for size in scale.shape]


@operator("LpNormalization")
def lp_normalization(call: Call) -> Any:
    """Read `LpNormalization`."""
    x, order = call.tensor(0), call.attribute("p", 2)
    axis = call.attribute("axis", -1)
    norm = call.run(aten.linalg_vector_norm.default, x, float(order), [int(axis)], True)
    # zeros stay zeros
    return call.run(python.truediv, x, call.run(aten.clamp.default, norm, _SMALLEST))
