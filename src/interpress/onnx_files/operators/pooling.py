"""Pooling."""

from __future__ import annotations

from typing import Any

from interpress.onnx_files.call import Call, aten
from interpress.onnx_files.registry import operator
from interpress.onnx_files.windows import Window, padded, window

_MAX = {1: aten.max_pool1d.default, 2: aten.max_pool2d.default, 3: aten.max_pool3d.default}
_AVERAGE = {1: aten.avg_pool1d.default, 2: aten.avg_pool2d.default, 3: aten.avg_pool3d.default}


@operator("MaxPool")
def max_pool(call: Call) -> Any:
    """Read `MaxPool`."""
    if len([name for name in call.node.output if name]) > 1:
        call.refuse("its indices are read")
    frame = window(call, [int(size) for size in call.attribute("kernel_shape")])
    _check_padding(call, frame)
    x, pads = padded(call, call.tensor(0), frame, float("-inf"))
    ceil_mode = _rounds_up(call, frame)
    return call.run(
        _MAX[len(frame.kernel)], x, frame.kernel, frame.strides, pads, frame.dilations, ceil_mode
    )


@operator("AveragePool")
def average_pool(call: Call) -> Any:
    """Read `AveragePool`."""
    frame = window(call, [int(size) for size in call.attribute("kernel_shape")])
    counts_padding = bool(call.attribute("count_include_pad", 0))
    if any(dilation != 1 for dilation in frame.dilations):
        call.refuse(f"it has dilations {frame.dilations}")
    _check_padding(call, frame)
    x, pads = padded(call, call.tensor(0), frame, 0.0)
    if x is not call.inputs[0] and not counts_padding:
        call.refuse("it pads the two ends of a dim differently and does not count the padding")
    ceil_mode = _rounds_up(call, frame)
    return call.run(
        _AVERAGE[len(frame.kernel)], x, frame.kernel, frame.strides, pads, ceil_mode, counts_padding
    )


def _check_padding(call: Call, frame: Window) -> None:
    pads = frame.pads[: len(frame.kernel)]
    if any(2 * pad > kernel for pad, kernel in zip(pads, frame.kernel, strict=True)):
        call.refuse(f"it pads {pads}, more than half of its window")


def _rounds_up(call: Call, frame: Window) -> bool:
    """Return `ceil_mode`.

    A last window that starts in the padding at the end is left out. PyTorch does not see that if
    the padding became part of the input, as it does if both ends of a dim differ.
    """
    dims = len(frame.kernel)
    before, after = frame.pads[:dims], frame.pads[dims:]
    if frame.same is not None or not call.attribute("ceil_mode", 0):
        return False  # with SAME, the windows fit
    if before == after:
        return True
    sizes = (call.shape(0) or ())[2:]
    for dim, (begin, end) in enumerate(zip(before, after, strict=True)):
        size = sizes[dim] if sizes else None
        stride, reach = frame.strides[dim], frame.dilations[dim] * (frame.kernel[dim] - 1) + 1
        if end and size is None:
            call.refuse("it has ceil_mode and unequal padding, and the size of its input is open")
        last = -(-((size or 0) + begin + end - reach) // stride) * stride
        if end and last >= (size or 0) + begin:
            call.refuse("it has ceil_mode, and a window that starts in unequal padding")
    return True


@operator("GlobalAveragePool")
def global_average_pool(call: Call) -> Any:
    """Read `GlobalAveragePool`."""
    return call.run(aten.mean.dim, call.tensor(0), list(range(2, call.rank(0))), True)


@operator("GlobalMaxPool")
def global_max_pool(call: Call) -> Any:
    """Read `GlobalMaxPool`."""
    return call.run(aten.amax.default, call.tensor(0), list(range(2, call.rank(0))), True)
