"""Resizing of images."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch.nn import functional

from interpress.onnx_files.call import Call
from interpress.onnx_files.registry import operator

_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


@operator("Resize", "Upsample")
def resize(call: Call) -> Any:
    """Read `Resize` and `Upsample`."""
    x, spatial = call.tensor(0), call.rank(0) - 2
    if spatial not in _LINEAR:
        call.refuse(f"it resizes a tensor of {spatial + 2} dims")
    scales, sizes = _target(call)
    mode, corners = _mode(call, spatial)
    if scales is not None:
        if scales[:2] != [1.0, 1.0]:
            call.refuse(f"it resizes batch or channels, by {scales[:2]}")
        factors = [float(scale) for scale in scales[2:]]
        _check_lengths(call, factors)
        if mode.startswith("nearest") and any(64 * factor % 1 for factor in factors):
            call.refuse(f"it resizes by {factors}, where the nearest pixel depends on rounding")
        return call.run(
            functional.interpolate, x, None, factors, mode, corners, recompute_scale_factor=False
        )
    return call.run(functional.interpolate, x, sizes, None, mode, corners)


def _check_lengths(call: Call, factors: list[float]) -> None:
    """Refuse factors whose sizes depend on rounding, or which change pixels but not the size."""
    for size, factor in zip((call.shape(0) or ())[2:], factors, strict=False):
        if size is None:
            continue
        if int(np.float32(size) * np.float32(factor)) != int(size * factor):
            call.refuse(f"it resizes {size} by {factor}, which is a whole number up to rounding")
        if factor != 1.0 and int(size * factor) == size:
            call.refuse(f"it resizes {size} by {factor}, which is {size} again")


def _target(call: Call) -> tuple[list[Any] | None, list[Any] | None]:
    """Return the scales, or the sizes of the output's spatial dims."""
    if call.node.op_type == "Upsample":
        scales = call.attribute("scales") if call.opset < 9 else call.numbers(1)
        return list(scales or ()), None
    scales = call.numbers(2 if call.opset >= 11 else 1)
    if call.attribute("axes") or call.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        call.refuse("it has axes or a policy for the aspect ratio")
    if scales:
        return scales, None
    sizes = call.numbers(3)
    if sizes is None:
        call.refuse("it has neither scales nor sizes")
    for old, new in zip((call.shape(0) or ())[:2], sizes[:2], strict=False):
        if isinstance(new, int) and old is not None and new != old:
            call.refuse(f"it resizes batch or channels, from {old} to {new}")
    return None, sizes[2:]


def _mode(call: Call, spatial: int) -> tuple[str, bool | None]:
    """Return the mode of `interpolate` and its `align_corners`."""
    mode = call.attribute("mode", "nearest")
    old = call.node.op_type == "Upsample" or call.opset < 11
    coordinates = "asymmetric" if old else call.attribute(
        "coordinate_transformation_mode", "half_pixel"
    )  # fmt: skip
    if mode == "nearest":
        rounding = "floor" if old else call.attribute("nearest_mode", "round_prefer_floor")
        if _whole_factors(call):  # all of these are the same for whole factors
            same = {
                ("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"),
                ("half_pixel", "round_prefer_ceil"), ("pytorch_half_pixel", "round_prefer_floor"),
            }  # fmt: skip
            if (coordinates, rounding) in same:
                return "nearest", None
        if (coordinates, rounding) == ("asymmetric", "floor"):
            return "nearest", None
        if (coordinates, rounding) == ("half_pixel", "round_prefer_ceil"):
            return "nearest-exact", None
        call.refuse(f"PyTorch has no nearest mode {rounding!r} with {coordinates!r} coordinates")
    if mode == "cubic" and spatial != 2:
        call.refuse(f"it resizes {spatial} dims in mode {mode!r}")
    if call.attribute("antialias", 0):
        call.refuse("it has antialias=1")
    name = _LINEAR[spatial] if mode == "linear" else "bicubic"
    if mode == "cubic" and call.attribute("cubic_coeff_a", -0.75) != -0.75:
        call.refuse("its cubic_coeff_a is not -0.75")
    if mode == "cubic" and call.attribute("exclude_outside", 0):
        call.refuse("it has exclude_outside=1")
    aligned = {"half_pixel": False, "pytorch_half_pixel": False, "align_corners": True}
    if coordinates not in aligned:
        call.refuse(f"PyTorch has no {mode} mode with {coordinates!r} coordinates")
    if coordinates == "pytorch_half_pixel" and _makes_one_pixel(call):
        call.refuse("it resizes to one pixel with 'pytorch_half_pixel' coordinates")
    return name, aligned[coordinates]


def _makes_one_pixel(call: Call) -> bool:
    """Return whether a dim becomes one pixel, which is then the first one, not the middle."""
    before, (scales, sizes) = call.shape(0), _target(call)
    if sizes is None:
        known = [] if before is None else list(zip(before[2:], (scales or ())[2:], strict=True))
        sizes = [None if size is None else int(size * scale) for size, scale in known]
    return any(isinstance(size, int) and size == 1 for size in sizes)


def _whole_factors(call: Call) -> bool:
    """Return whether every scale is known and a whole number."""
    if call.node.op_type == "Upsample":
        scales = call.attribute("scales") if call.opset < 9 else call.numbers(1)
    else:
        scales = call.numbers(2 if call.opset >= 11 else 1)
    if scales:
        return all(float(scale).is_integer() for scale in scales)
    before, after = call.shape(0), call.numbers(3)
    if before is None or after is None:
        return False
    return all(
        isinstance(new, int) and old is not None and new % old == 0
        for old, new in zip(before[2:], after[2:], strict=True)
    )
