"""Resizing is read as ONNX Runtime computes it, or refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.onnx_files.harness import (
    Case,
    case,
    check_equal,
    check_refused,
    const,
    feeds_of,
    model_of,
    rand,
    run_file,
    run_network,
)

from interpress.errors import CaptureError

IMAGES = rand(2, 3, 5, 6)
EMPTY = const(dtype=np.float32)


def scales(*values: float) -> object:
    return const(*values, dtype=np.float32)


def resize(x: np.ndarray, factors: object, sizes: object = None, **attributes: object) -> Case:
    return case("Resize", x, EMPTY, factors, *([] if sizes is None else [sizes]), **attributes)


NEAREST = [
    {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"},
]
WHOLE_NEAREST = [
    *NEAREST,
    {},
    {"coordinate_transformation_mode": "pytorch_half_pixel"},
]
LINEAR = [
    {"mode": mode, "coordinate_transformation_mode": coordinates}
    for mode in ("linear", "cubic")
    for coordinates in ("half_pixel", "pytorch_half_pixel", "align_corners")
]
CASES = [
    *(resize(IMAGES, scales(1, 1, 2, 3), **words) for words in [*WHOLE_NEAREST, *LINEAR]),
    *(resize(IMAGES, scales(1, 1, 1, 4), opset=11, **words) for words in WHOLE_NEAREST),
    *(resize(IMAGES, None, const(2, 3, 10, 12), **words) for words in [*WHOLE_NEAREST, *LINEAR]),
    *(resize(IMAGES, EMPTY, const(2, 3, 10, 12), opset=11, **words) for words in LINEAR),
    *(resize(IMAGES, None, const(2, 3, 7, 4), **words) for words in [*NEAREST, *LINEAR]),
    *(resize(IMAGES, scales(1, 1, 1.5, 0.5), **words) for words in [*NEAREST, *LINEAR]),
    *(resize(IMAGES, scales(1, 1, 1.5, 0.6), **words) for words in LINEAR),
    *(resize(rand(2, 3, 7), scales(1, 1, 2), **words) for words in [*NEAREST, LINEAR[0]]),
    *(resize(rand(1, 2, 3, 4, 5), scales(1, 1, 2, 1, 2), **words)
      for words in [*NEAREST, *LINEAR[:3]]),
    case("Resize", IMAGES, scales(1, 1, 2, 2), opset=10),
    case("Upsample", IMAGES, scales(1, 1, 2, 3), opset=9),
    case("Upsample", IMAGES, opset=7, scales=[1.0, 1.0, 2.0, 2.0]),
]  # fmt: skip


@pytest.mark.parametrize("example", CASES, ids=str)
def test_as_in_onnx_runtime(example: Case) -> None:
    check_equal(example)


REFUSED = [
    (resize(IMAGES, scales(1, 1, 1.5, 1.5)), "no nearest mode"),
    (resize(IMAGES, scales(1, 1, 2, 2), nearest_mode="ceil"), "no nearest mode"),
    (resize(IMAGES, scales(1, 1, 2, 2), coordinate_transformation_mode="align_corners"),
     "no nearest mode"),
    (resize(IMAGES, scales(1, 1, 2, 2), mode="linear",
            coordinate_transformation_mode="asymmetric"), "no linear mode"),
    (resize(IMAGES, scales(1, 1, 2, 2), mode="cubic",
            coordinate_transformation_mode="asymmetric"), "no cubic mode"),
    (resize(IMAGES, scales(1, 1, 2, 2), mode="cubic", cubic_coeff_a=-0.5), "cubic_coeff_a"),
    (resize(IMAGES, scales(1, 1, 2, 2), mode="cubic", exclude_outside=1), "exclude_outside"),
    (resize(IMAGES, scales(1, 1, 0.5, 0.5), mode="linear", antialias=1, opset=18), "antialias"),
    (resize(IMAGES, scales(1, 2, 1, 1)), "batch or channels"),
    (resize(IMAGES, None, const(2, 6, 5, 6)), "batch or channels"),
    (resize(IMAGES, None, const(4, 3, 5, 6)), "batch or channels"),
    (resize(IMAGES, scales(1, 1, 1.1, 0.5), **LINEAR[0]), "which is 5 again"),
    (resize(rand(1, 1, 3, 3), scales(1, 1, 5 / 3, 1), **LINEAR[0]), "up to rounding"),
    (resize(IMAGES, scales(1, 1, 1.3, 1), **NEAREST[0]), "depends on rounding"),
    (resize(rand(4, 5), scales(2, 2)), "resizes"),
    (resize(IMAGES, scales(2, 2), opset=18, axes=[2, 3]), "axes or a policy"),
    (resize(IMAGES, None, const(2, 3, 10, 10), opset=18,
            keep_aspect_ratio_policy="not_larger"), "axes or a policy"),
    (resize(IMAGES, None, const(2, 3, 1, 1), mode="linear",
            coordinate_transformation_mode="pytorch_half_pixel"), "to one pixel"),
    (case("Upsample", IMAGES, scales(1, 1, 2, 2), mode="linear", opset=9), "no linear mode"),
]  # fmt: skip


@pytest.mark.parametrize(("example", "reason"), REFUSED, ids=str)
def test_refused(example: Case, reason: str) -> None:
    check_refused(example, reason)


def test_coordinates_of_a_region_are_refused() -> None:
    roi = const(0, 0, 0, 0, 1, 1, 1, 1, dtype=np.float32)
    example = case("Resize", IMAGES, roi, scales(1, 1, 2, 2), mode="linear",
                   coordinate_transformation_mode="tf_crop_and_resize")  # fmt: skip
    check_refused(example, "no linear mode")


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    before=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    after=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    words=st.sampled_from([*WHOLE_NEAREST, *LINEAR]),
    by_sizes=st.booleans(),
)
def test_any_size(
    before: tuple[int, int], after: tuple[int, int], words: dict[str, str], by_sizes: bool
) -> None:
    """Every resize is either refused, or equal to ONNX Runtime."""
    x = rand(1, 2, *before)
    factors = [new / old for new, old in zip(after, before, strict=True)]
    example = (
        resize(x, None, const(1, 2, *after), **words)
        if by_sizes
        else resize(x, scales(1, 1, *factors), **words)
    )
    try:
        (actual,) = run_network(model_of(example), feeds_of(example))
    except CaptureError:
        return
    (expected,) = run_file(model_of(example), feeds_of(example))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
