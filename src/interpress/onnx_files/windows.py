"""Windows that slide over an input: those of convolutions and pooling, and their padding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from interpress.onnx_files.call import Call, aten


@dataclass(frozen=True)
class Window:
    """The sizes of a sliding window, one number per spatial dim."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]
    """Before every dim, then after every dim."""
    same: str | None
    """"SAME_UPPER" or "SAME_LOWER" if the padding follows from the size of the input."""


def window(call: Call, kernel: list[int]) -> Window:
    """Return the window of a node."""
    dims = len(kernel)

    def numbers(name: str, default: int, length: int = dims) -> list[int]:
        return [int(number) for number in call.attribute(name, [default] * length)]

    mode = call.attribute("auto_pad", "NOTSET")
    return Window(
        kernel,
        numbers("strides", 1),
        numbers("dilations", 1),
        [0] * (2 * dims) if mode == "VALID" else numbers("pads", 0, 2 * dims),
        mode if mode.startswith("SAME") else None,
    )


def padded(call: Call, x: Any, frame: Window, value: float) -> tuple[Any, list[int]]:
    """Return the input, padded if both ends of a dim differ, and the padding that is left."""
    dims = len(frame.kernel)
    before, after = list(frame.pads[:dims]), list(frame.pads[dims:])
    if frame.same is not None:
        before, after = _same(call, x, frame)
    if all(type(pad) is int for pad in [*before, *after]) and before == after:
        return x, before
    pairs = [pad for pair in reversed([*zip(before, after, strict=True)]) for pad in pair]
    return call.run(aten.constant_pad_nd.default, x, pairs, value), [0] * dims


def _same(call: Call, x: Any, frame: Window) -> tuple[list[Any], list[Any]]:
    """Return the padding that makes the output as long as the input, divided by the stride."""
    before, after = [], []
    sizes = call.shape(0)
    for dim, kernel in enumerate(frame.kernel):
        stride, reach = frame.strides[dim], frame.dilations[dim] * (kernel - 1) + 1
        known = None if sizes is None else sizes[dim + 2]
        if stride > reach + 1:  # runtimes differ in where the first window starts
            call.refuse(f"it has auto_pad, and strides of {stride} for a window of {reach}")
        if stride == 1:
            total: Any = reach - 1
        else:
            length: Any = known or call.size(x, dim + 2)
            total = call.run(torch.sym_max, (-(-length // stride) - 1) * stride + reach - length, 0)
        smaller = total // 2
        larger = total - smaller
        before.append(smaller if frame.same == "SAME_UPPER" else larger)
        after.append(larger if frame.same == "SAME_UPPER" else smaller)
    return before, after
