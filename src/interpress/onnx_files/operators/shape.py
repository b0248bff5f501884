"""Operators that change the shape of a tensor."""

from __future__ import annotations

from typing import Any

from interpress.onnx_files.call import Call, aten
from interpress.onnx_files.registry import operator


@operator("Reshape")
def reshape(call: Call) -> Any:
    """Read `Reshape`."""
    sizes = call.option(1, "shape")
    if sizes is None:
        call.refuse("it has no shape")
    x = call.tensor(0)
    if not call.attribute("allowzero", 0):
        sizes = [
            call.size(x, dim) if type(size) is not float and _is(size, 0) else size
            for dim, size in enumerate(sizes)
        ]
    return call.run(aten.reshape.default, x, sizes)


def _is(size: Any, number: int) -> bool:
    """Return whether a size is this number; a symbol is not."""
    return isinstance(size, int) and size == number


@operator("Flatten")
def flatten(call: Call) -> Any:
    """Read `Flatten`."""
    x, axis = call.tensor(0), int(call.attribute("axis", 1))
    axis = axis if axis >= 0 else axis + call.rank(0)
    if axis == 0:
        return call.run(aten.reshape.default, x, [1, -1])
    rows = x if axis == 1 else call.run(aten.flatten.using_ints, x, 0, axis - 1)
    shape = call.shape(0)
    if shape is not None and len(shape) == axis:
        return call.run(aten.unsqueeze.default, rows, -1)
    if shape is not None and len(shape) == axis + 1:
        return rows
    return call.run(aten.flatten.using_ints, rows, 1, -1)


@operator("Transpose")
def transpose(call: Call) -> Any:
    """Read `Transpose`."""
    order = call.attribute("perm") or list(reversed(range(call.rank(0))))
    return call.run(aten.permute.default, call.tensor(0), [int(dim) for dim in order])


@operator("Squeeze")
def squeeze(call: Call) -> Any:
    """Read `Squeeze`."""
    axes = call.option(1, "axes")
    if axes is None:
        shape = call.shape(0)
        if shape is None or None in shape:
            call.refuse("it removes the dims of size 1, and the shape is not known; give its axes")
        axes = [dim for dim, size in enumerate(shape) if size == 1]
    return call.run(aten.squeeze.dims, call.tensor(0), [int(axis) for axis in axes])


@operator("Unsqueeze")
def unsqueeze(call: Call) -> Any:
    """Read `Unsqueeze`."""
    x, axes = call.tensor(0), [int(axis) for axis in call.option(1, "axes") or []]
    if len(axes) > 1 and min(axes) < 0:
        rank = call.rank(0) + len(axes)
        axes = [axis % rank for axis in axes]
    for axis in sorted(axes):
        x = call.run(aten.unsqueeze.default, x, axis)
    return x


@operator("Expand")
def expand(call: Call) -> Any:
    """Read `Expand`."""
    x, sizes = call.tensor(0), call.numbers(1) or []
    rank = call.rank(0)
    sizes = [1] * (rank - len(sizes)) + list(sizes)
    # 1 keeps a dim as it is
    sizes = [
        -1 if _is(size, 1) and i >= len(sizes) - rank else size for i, size in enumerate(sizes)
    ]
    if any(_is_symbol(size) for size in sizes):
        filler = call.run(aten.full.default, [1 if _is(s, -1) else s for s in sizes], 1.0)
        pair = call.run(aten.broadcast_tensors.default, [x, filler])
        return pair[0]
    return call.run(aten.expand.default, x, sizes)


def _is_symbol(size: Any) -> bool:
    return not isinstance(size, int)


@operator("Tile")
def tile(call: Call) -> Any:
    """Read `Tile`."""
    return call.run(aten.repeat.default, call.tensor(0), call.numbers(1))


@operator("DepthToSpace")
def depth_to_space(call: Call) -> Any:
    """Read `DepthToSpace`."""
    block, x = int(call.attribute("blocksize")), call.tensor(0)
    if call.attribute("mode", "DCR") == "CRD":
        return call.run(aten.pixel_shuffle.default, x, block)
    # the blocks come first among the channels
    batch, rows, columns = (call.size(x, dim) for dim in (0, 2, 3))
    split = call.run(aten.reshape.default, x, [batch, block, block, -1, rows, columns])
    moved = call.run(aten.permute.default, split, [0, 3, 4, 1, 5, 2])
    return call.run(aten.reshape.default, moved, [batch, -1, rows * block, columns * block])


@operator("SpaceToDepth")
def space_to_depth(call: Call) -> Any:
    """Read `SpaceToDepth`."""
    block, x = int(call.attribute("blocksize")), call.tensor(0)
    batch, channels, rows, columns = (call.size(x, dim) for dim in range(4))
    split = call.run(
        aten.reshape.default, x,
        [batch, channels, rows // block, block, columns // block, block],
    )  # fmt: skip
    moved = call.run(aten.permute.default, split, [0, 3, 5, 1, 2, 4])
    return call.run(aten.reshape.default, moved, [batch, -1, rows // block, columns // block])
