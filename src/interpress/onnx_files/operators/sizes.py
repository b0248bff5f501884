"""Arithmetic on sizes, such as the shape that a Reshape asks for.

The inputs are arrays of integers and of symbols; a symbol is a size that is known when the network
runs. NumPy applies Python's operators to the symbols.
"""

from __future__ import annotations

import functools
import math
import operator as python
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.fx import Proxy

from interpress.onnx_files.call import Call
from interpress.onnx_files.operators.making import DTYPES
from interpress.onnx_files.registry import on_sizes

Array = np.ndarray[Any, Any]


@on_sizes("Identity")
def identity(call: Call) -> Any:
    """Read `Identity` of sizes."""
    return call.sizes(0)


@on_sizes("Concat")
def concatenate(call: Call) -> Any:
    """Read `Concat` of sizes."""
    arrays = [call.sizes(position) for position in range(len(call.inputs))]
    return np.concatenate(arrays, axis=int(call.attribute("axis", 0)))


@on_sizes("Gather")
def gather(call: Call) -> Any:
    """Read `Gather` of sizes."""
    index = call.sizes(1).astype(np.int64)
    return _array(np.take(call.sizes(0), index, axis=int(call.attribute("axis", 0))))


@on_sizes("Slice")
def slice_(call: Call) -> Any:
    """Read `Slice` of sizes."""
    array = call.sizes(0)
    starts, ends = call.option(1, "starts"), call.option(2, "ends")
    assert starts is not None
    assert ends is not None
    axes = call.option(3, "axes") or list(range(len(starts)))
    steps = call.numbers(4) or [1] * len(starts)
    if any(isinstance(number, Proxy) for number in [*starts, *ends]):
        call.refuse("it slices a shape at a size")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        cut = [slice(None)] * array.ndim
        cut[int(axis)] = slice(int(start), int(end), int(step))
        array = array[tuple(cut)]
    return array


@on_sizes("Unsqueeze")
def unsqueeze(call: Call) -> Any:
    """Read `Unsqueeze` of sizes."""
    axes = call.option(1, "axes") or []
    return np.expand_dims(call.sizes(0), tuple(int(axis) for axis in axes))


@on_sizes("Squeeze")
def squeeze(call: Call) -> Any:
    """Read `Squeeze` of sizes."""
    axes = call.option(1, "axes")
    array = call.sizes(0)
    return _array(np.squeeze(array, None if axes is None else tuple(int(a) for a in axes)))


@on_sizes("Reshape")
def reshape(call: Call) -> Any:
    """Read `Reshape` of sizes."""
    return call.sizes(0).reshape([int(size) for size in call.option(1, "shape") or []])


@on_sizes("Cast")
def cast(call: Call) -> Any:
    """Read `Cast` of sizes."""
    dtype = DTYPES.get(int(call.attribute("to")))
    array = call.sizes(0)
    if dtype in (torch.int64, torch.int32):
        integer = functools.partial(_integer, call)
        return _array(np.frompyfunc(integer, 1, 1)(array))
    if dtype is None or not dtype.is_floating_point:
        call.refuse(f"it casts sizes to {dtype}")
    return _array(np.frompyfunc(lambda number: call.run(torch.sym_float, number), 1, 1)(array))


def _integer(call: Call, number: Any) -> Any:
    if isinstance(number, Proxy):
        return call.run(torch.sym_int, number) if call.is_float(call.node.input[0]) else number
    return int(number) if isinstance(number, float | bool) else number


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[Call], Any]:
    def read(call: Call) -> Any:
        return _array(np.frompyfunc(function, 2, 1)(call.sizes(0), call.sizes(1)))

    return read


@on_sizes("Div")
def divide(call: Call) -> Any:
    """Read `Div` of sizes."""
    function = python.truediv if call.is_float(call.node.input[0]) else python.floordiv
    return _array(np.frompyfunc(function, 2, 1)(call.sizes(0), call.sizes(1)))


def _equal(a: Any, b: Any) -> bool:
    """Return whether two sizes are equal; a symbol is never negative."""
    if isinstance(a, Proxy) and isinstance(b, Proxy) and a.node is b.node:
        return True
    symbolic = [isinstance(value, Proxy) for value in (a, b)]
    if any(symbolic):
        number = b if symbolic[0] else a
        if isinstance(number, int) and number < 0:
            return False
        raise _Unknown
    return bool(a == b)


class _Unknown(Exception):
    """Two sizes that may or may not be equal."""


for _name, _function in {
    "Add": python.add, "Sub": python.sub, "Mul": python.mul, "Mod": python.mod,
}.items():  # fmt: skip
    on_sizes(_name)(_binary(_function))


@on_sizes("Equal")
def equal(call: Call) -> Any:
    """Read `Equal` of sizes."""
    try:
        compared = np.frompyfunc(_equal, 2, 1)(call.sizes(0), call.sizes(1))
    except _Unknown:
        call.refuse("it compares sizes that are only known when the network runs")
    return torch.from_numpy(np.asarray(compared, dtype=bool))


@on_sizes("Where")
def where(call: Call) -> Any:
    """Read `Where` of sizes."""
    condition = call.constant(0)
    if condition is None:
        call.refuse("its condition is computed by the network")
    return _array(np.where(condition.numpy(), call.sizes(1), call.sizes(2)))


@on_sizes("ReduceProd")
def product(call: Call) -> Any:
    """Read `ReduceProd` of sizes."""
    total: Any = 1
    for number in call.sizes(0).reshape(-1):
        total = total * number
    return _array(total).reshape((1,) if call.attribute("keepdims", 1) else ())


@on_sizes("Neg")
def negative(call: Call) -> Any:
    """Read `Neg` of sizes."""
    return _array(np.frompyfunc(python.neg, 1, 1)(call.sizes(0)))


def _array(value: Any) -> Array:
    """Return a result of NumPy as an array, also if it is a single object."""
    if isinstance(value, np.ndarray):
        return value
    array = np.empty((), dtype=object)
    array[()] = value
    return array


@on_sizes("Floor", "Ceil")
def rounded(call: Call) -> Any:
    """Read `Floor` and `Ceil` of sizes."""
    function = math.floor if call.node.op_type == "Floor" else math.ceil
    whole = np.frompyfunc(lambda number: call.run(function, number), 1, 1)(call.sizes(0))
    return _array(np.frompyfunc(lambda number: call.run(torch.sym_float, number), 1, 1)(whole))


@on_sizes("Shape")
def shape(call: Call) -> Any:
    """Read `Shape` of sizes."""
    return torch.tensor(call.sizes(0).shape)
