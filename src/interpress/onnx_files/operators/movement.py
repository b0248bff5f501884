"""Operators that move data: concatenation, splitting, slicing, padding, lookups."""

from __future__ import annotations

import operator as python
from typing import Any

import torch

from interpress.onnx_files.call import Call, aten
from interpress.onnx_files.registry import operator
from interpress.onnx_files.sizes import FileInt, Place

_END = 2**31 - 1  # ends from here on mean the end of the dim
_INT32 = 6  # the element type, as the number that ONNX gives it
_PADDING = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@operator("Concat")
def concatenate(call: Call) -> Any:
    """Read `Concat`."""
    tensors = [call.tensor(position) for position in range(len(call.inputs))]
    return call.run(aten.cat.default, tensors, int(call.attribute("axis", 1)))


@operator("Split")
def split(call: Call) -> Any:
    """Read `Split`."""
    x, axis = call.tensor(0), int(call.attribute("axis", 0))
    count = len(call.node.output)
    sizes = call.option(1, "split")
    if sizes is None:
        shape = call.shape(0)
        length = None if shape is None else shape[axis]
        if length is not None:  # every part has a size of its own, which may be written later
            part = -(-length // count)
            numbers = [*[part] * (count - 1), length - part * (count - 1)]
            sizes = [FileInt(n, Place(call.index, "split", i)) for i, n in enumerate(numbers)]
    if sizes is not None:
        parts = call.run(aten.split_with_sizes.default, x, sizes, axis)
    else:
        parts = call.run(aten.chunk.default, x, count, axis)
    return [call.run(python.getitem, parts, index) for index in range(count)]


@operator("Slice")
def slice_(call: Call) -> Any:
    """Read `Slice`."""
    x = call.tensor(0)
    starts, ends = call.option(1, "starts"), call.option(2, "ends")
    assert starts is not None
    assert ends is not None
    axes = call.option(3, "axes") or list(range(len(starts)))
    steps = call.numbers(4) or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not isinstance(step, int) or step == 0:
            call.refuse(f"it has the step {step}")
        if step < 0:
            x = _reversed(call, x, (start, end, int(axis), step))
            continue
        stop = None if isinstance(end, int) and end >= _END else end
        x = call.run(aten.slice.Tensor, x, int(axis), start, stop, int(step))
    return x


def _reversed(call: Call, x: Any, cut: tuple[Any, Any, int, int]) -> Any:
    """Return a whole dim in the opposite order."""
    start, end, axis, step = cut
    whole = isinstance(start, int) and isinstance(end, int)
    if not whole or (start != -1 and start < _END) or end > -_END:
        call.refuse(f"it reads backwards from {start} to {end}; only a whole dim can be reversed")
    flipped = call.run(aten.flip.default, x, [axis])
    return flipped if step == -1 else call.run(aten.slice.Tensor, flipped, axis, 0, None, -step)


@operator("Gather")
def gather(call: Call) -> Any:
    """Read `Gather`."""
    axis = int(call.attribute("axis", 0))
    index = call.constant(1)
    if index is not None and index.ndim == 0 and not call.folds:
        return call.run(aten.select.int, call.tensor(0), axis, call.number(1))
    table, index = call.tensor(0), call.tensor(1)
    is_table = call.constant(0) is not None and len(call.shape(0) or ()) == 2
    if axis == 0 and is_table and not _counts_from_end(call):
        return call.run(aten.embedding.default, table, index)
    dims: list[Any] = [None] * (axis if axis >= 0 else axis + call.rank(0))
    return call.run(aten.index.Tensor, table, [*dims, index])


@operator("GatherElements")
def gather_elements(call: Call) -> Any:
    """Read `GatherElements`."""
    axis, index = int(call.attribute("axis", 0)), call.tensor(1)
    if _counts_from_end(call):
        call.refuse("its indices count from the end")
    if call.type_of(call.node.input[1]) == _INT32:
        index = call.run(aten.to.dtype, index, torch.int64)
    return call.run(aten.gather.default, call.tensor(0), axis, index)


def _counts_from_end(call: Call) -> bool:
    """Return whether constant indices are negative, which not all functions of PyTorch know."""
    index = call.constant(1)
    return index is not None and bool((index < 0).any())


@operator("Pad")
def pad(call: Call) -> Any:
    """Read `Pad`."""
    x, mode = call.tensor(0), call.attribute("mode", "constant")
    pads = call.option(1, "pads")
    assert pads is not None
    value = call.attribute("value", 0.0) if call.opset < 11 else call.number(2) or 0.0
    count = len(pads) // 2
    before, after = [0] * count, [0] * count
    if call.has(3):
        rank = call.rank(0)
        before, after = [0] * rank, [0] * rank
    for position, axis in enumerate(call.numbers(3) or range(count)):
        before[int(axis)], after[int(axis)] = pads[position], pads[position + count]
    pairs = [pad for pair in reversed([*zip(before, after, strict=True)]) for pad in pair]
    if mode == "constant":
        return call.run(aten.constant_pad_nd.default, x, pairs, value)
    spatial = call.rank(0) - 2
    others = pairs[2 * spatial :]
    if any(not isinstance(number, int) or number != 0 for number in others) or spatial < 1:
        call.refuse(f"it pads batch or channels in mode {mode!r}")
    return call.run(torch.nn.functional.pad, x, pairs[: 2 * spatial], _PADDING[mode])


@operator("Trilu")
def triangle(call: Call) -> Any:
    """Read `Trilu`."""
    function = aten.triu.default if call.attribute("upper", 1) else aten.tril.default
    return call.run(function, call.tensor(0), int(call.number(1) or 0))
