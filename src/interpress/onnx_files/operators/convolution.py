"""Convolutions."""

from __future__ import annotations

from typing import Any

from interpress.onnx_files.call import Call, aten
from interpress.onnx_files.registry import operator
from interpress.onnx_files.windows import padded, window

_CONVOLUTIONS = {1: aten.conv1d.default, 2: aten.conv2d.default, 3: aten.conv3d.default}
_TRANSPOSED = {
    1: aten.conv_transpose1d.default,
    2: aten.conv_transpose2d.input,
    3: aten.conv_transpose3d.input,
}


@operator("Conv")
def convolution(call: Call) -> Any:
    """Read `Conv`."""
    weight = call.shape(1)
    if weight is None or len(weight) - 2 not in _CONVOLUTIONS:
        call.refuse("it needs a weight of 3, 4 or 5 dims")
    frame = window(call, [int(size or 0) for size in weight[2:]])
    x, pads = padded(call, call.tensor(0), frame, 0.0)
    return call.run(
        _CONVOLUTIONS[len(weight) - 2],
        x, call.tensor(1), call.tensor(2), frame.strides, pads, frame.dilations,
        call.attribute("group", 1),
    )  # fmt: skip


@operator("ConvTranspose")
def transposed_convolution(call: Call) -> Any:
    """Read `ConvTranspose`."""
    weight = call.shape(1)
    if weight is None or len(weight) - 2 not in _TRANSPOSED:
        call.refuse("it needs a weight of 3, 4 or 5 dims")
    spatial = len(weight) - 2
    frame = window(call, [int(size or 0) for size in weight[2:]])
    if "output_shape" in call.attributes or frame.same is not None:
        call.refuse("it gives its padding by the shape of its output; export it with pads")
    begin, end = frame.pads[:spatial], frame.pads[spatial:]
    extra = [int(e) for e in call.attribute("output_padding", [0] * spatial)]
    # what is cut off at the end only is a smaller output padding
    output_padding = [e + b - p for e, b, p in zip(extra, begin, end, strict=True)]
    if any(o < 0 or o >= max(s, d) for o, s, d in
           zip(output_padding, frame.strides, frame.dilations, strict=True)):  # fmt: skip
        call.refuse(f"its pads {frame.pads} cannot be said in PyTorch")
    return call.run(
        _TRANSPOSED[spatial],
        call.tensor(0), call.tensor(1), call.tensor(2), frame.strides, begin, output_padding,
        call.attribute("group", 1), frame.dilations,
    )  # fmt: skip
