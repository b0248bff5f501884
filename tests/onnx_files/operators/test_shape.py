"""Changes of shape are read as ONNX Runtime computes them."""

import numpy as np
import pytest
from tests.onnx_files.harness import (
    Case,
    case,
    check_equal,
    check_refused,
    const,
    model_of,
    rand,
    weight,
)

from interpress.errors import CaptureError
from interpress.onnx_files.read import read_onnx

X = rand(2, 3, 4)
IMAGES = rand(2, 8, 4, 6)
ONES = rand(2, 1, 3, 1)

CASES = [
    *(case("Reshape", X, const(*shape)) for shape in
      ((6, 4), (-1, 4), (0, -1), (0, 0, 2, 2), (2, 12), (-1,), (24,), (0, 4, 3), (1, 2, 3, 4))),
    *(case("Reshape", X, const(0, -1), opset=opset) for opset in (7, 13, 14)),
    case("Reshape", X, const(0, -1), opset=14, allowzero=0),
    case("Reshape", X, const(2, -1, 4), opset=14, allowzero=1),
    case("Reshape", np.zeros((2, 0), np.float32), const(0, 3), opset=14, allowzero=1),
    case("Reshape", weight(3, 4), const(4, 3)),
    *(case("Flatten", IMAGES, **words) for words in
      ({}, {"axis": 0}, {"axis": 1}, {"axis": 2}, {"axis": 3}, {"axis": 4}, {"axis": -1},
       {"axis": -4})),
    case("Flatten", X[0], axis=1),
    case("Flatten", rand(5), axis=1),
    case("Flatten", X, opset=7),
    case("Transpose", X),
    *(case("Transpose", X, perm=perm) for perm in ([1, 0, 2], [2, 0, 1], [0, 1, 2])),
    *(case("Squeeze", ONES, opset=11, **words) for words in ({}, {"axes": [1]}, {"axes": [-1, 1]})),
    *(case("Squeeze", ONES, *axes) for axes in ((), (const(1),), (const(-1, 1),), (const(3),))),
    *(case("Unsqueeze", X, opset=11, axes=axes) for axes in ([0], [1, 3], [-1], [-1, 0], [3, 1])),
    *(case("Unsqueeze", X, const(*axes)) for axes in ((0,), (1, 3), (-1,), (-1, 0), (-2, -1))),
    *(case("Expand", ONES, const(*shape)) for shape in
      ((2, 4, 3, 5), (1, 4, 1, 1), (4, 1, 2), (5, 2, 1, 3, 1), (1, 2, 1, 3, 1), (1,), (3, 1))),
    case("Expand", ONES > 0, const(2, 4, 3, 5)),
    case("Expand", np.arange(3), const(2, 3)),
    *(case("Tile", X, const(*repeats)) for repeats in ((1, 1, 1), (2, 1, 3))),
    *(case("DepthToSpace", IMAGES, blocksize=2, **words) for words in
      ({}, {"mode": "DCR"}, {"mode": "CRD"})),
    case("SpaceToDepth", IMAGES, blocksize=2),
]  # fmt: skip


@pytest.mark.parametrize("example", CASES, ids=str)
def test_as_in_onnx_runtime(example: Case) -> None:
    check_equal(example)


def test_a_shape_that_is_computed_from_data_is_refused() -> None:
    check_refused(case("Reshape", X, np.array([6, 4])), "must be a size")


def test_a_squeeze_of_what_is_one_needs_the_shape() -> None:
    with pytest.raises(CaptureError, match="give its axes"):
        read_onnx(model_of(case("Squeeze", ONES), free=True))
