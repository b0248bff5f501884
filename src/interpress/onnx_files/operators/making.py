"""Operators that make tensors, or only use the shape or the type of their input."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from interpress.onnx_files.call import Call, aten
from interpress.onnx_files.registry import operator

DTYPES = {
    1: torch.float32, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32,
    7: torch.int64, 9: torch.bool, 10: torch.float16, 11: torch.float64, 16: torch.bfloat16,
}  # fmt: skip
"""The element types of a file, by their number."""


@operator("Shape")
def shape(call: Call) -> Any:
    """Read `Shape`."""
    x, rank = call.tensor(0), call.rank(0)
    known = call.shape(0)
    dims = range(rank)[call.attribute("start", 0) : call.attribute("end", rank)]
    if call.constant(0) is not None:
        return torch.tensor([known[dim] for dim in dims] if known else [], dtype=torch.int64)
    array = np.empty(len(dims), dtype=object)
    for position, dim in enumerate(dims):
        array[position] = call.size(x, dim)
    return array


@operator("Size")
def size(call: Call) -> Any:
    """Read `Size`."""
    constant = call.constant(0)
    if constant is not None:
        return torch.tensor(constant.numel())
    return call.run(aten.sym_numel.default, call.tensor(0))


@operator("Cast")
def cast(call: Call) -> Any:
    """Read `Cast`."""
    number = int(call.attribute("to"))
    if number not in DTYPES:
        call.refuse(f"it casts to the element type {number}")
    return call.run(aten.to.dtype, call.tensor(0), DTYPES[number])


@operator("CastLike")
def cast_like(call: Call) -> Any:
    """Read `CastLike`."""
    return call.run(torch.Tensor.type_as, call.tensor(0), call.tensor(1))


@operator("ConstantOfShape")
def constant_of_shape(call: Call) -> Any:
    """Read `ConstantOfShape`."""
    value = call.attribute("value")
    value = torch.zeros(1) if value is None else value
    return call.run(torch.full, call.numbers(0), value.reshape(-1)[0].item(), dtype=value.dtype)


@operator("Range")
def arange(call: Call) -> Any:
    """Read `Range`."""
    start, limit, step = (call.number(position) for position in range(3))
    dtype = DTYPES.get(call.type_of(call.node.output[0]) or 0, torch.int64)
    return call.run(aten.arange.start_step, start, limit, step, dtype=dtype)


@operator("EyeLike")
def eye_like(call: Call) -> Any:
    """Read `EyeLike`."""
    known = call.shape(0)
    if call.attribute("k", 0):
        call.refuse("it asks for another diagonal")
    if known is None or None in known:
        call.refuse("the shape of its input is not known")
    number = call.attribute("dtype", call.type_of(call.node.input[0]))
    if number not in DTYPES:
        call.refuse("its element type is not known")
    dtype = DTYPES[int(number)]
    return torch.eye(int(known[0] or 0), int(known[1] or 0), dtype=dtype)
