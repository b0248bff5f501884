"""Operators that move data are read as ONNX Runtime computes them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.onnx_files.harness import (
    Case,
    Const,
    assert_equal,
    case,
    check_equal,
    check_refused,
    const,
    feeds_of,
    model_of,
    rand,
    run_file,
    run_network,
    scalar,
    weight,
)

from interpress.errors import CaptureError

X = rand(2, 6, 5)
IMAGES = rand(2, 3, 5, 6)
INT32, INT64 = 2**31 - 1, 2**63 - 1
TABLE = weight(7, 4)
INDEX = np.array([[0, 3, 6], [1, 1, 2]])

SLICES = [
    ([1], [3], [1], [1]),
    ([-2], [INT64], [2], [1]),
    ([0], [INT32], [1], [2]),
    ([1, 0], [-1, 100], [-1, -2], [2, 3]),
    ([-100], [2], [1], [1]),
    ([4], [2], [1], [1]),
    ([-1], [-INT64], [1], [-1]),
    ([INT64], [-INT64], [2], [-2]),
]
CASES = [
    case("Concat", X, X, axis=1),
    case("Concat", X, rand(2, 6, 2), axis=-1),
    case("Concat", X, axis=0),
    case("Concat", X, weight(2, 1, 5), X, axis=1),
    *(Case("Split", [X], {"axis": 1, "split": [2, 4]}, opset, 2) for opset in (7, 11)),
    *(Case("Split", [X], {"axis": axis}, opset, 3) for opset in (11, 13) for axis in (1, -2)),
    *(Case("Split", [X, const(1, 2, 3)], {"axis": 1}, opset, 3) for opset in (13, 18)),
    Case("Split", [X], {"axis": 1, "num_outputs": 3}, 18, 3),
    Case("Split", [X], {"axis": 2, "num_outputs": 3}, 18, 3),
    Case("Split", [X], {}, 11, 2),
    *(case("Slice", X, const(*starts), const(*ends), const(*axes), const(*steps))
      for starts, ends, axes, steps in SLICES),
    case("Slice", X, const(0, 1), const(1, 4)),
    case("Slice", X, const(1), const(4), const(1)),
    case("Slice", X, const(1, dtype=np.int32), const(INT32, dtype=np.int32),
         const(1, dtype=np.int32)),
    case("Slice", X, opset=9, starts=[1, -3], ends=[INT64, -1], axes=[1, 2]),
    case("Slice", X, opset=7, starts=[0, 1], ends=[1, 3]),
    *(case("Gather", X, scalar(at, np.int64), axis=1) for at in (0, 3, -1)),
    case("Gather", X, const(5, 0, -2), axis=1),
    case("Gather", X, Const(np.array([[0, 1], [2, 2]])), axis=-1),
    case("Gather", X, const(1), axis=0),
    case("Gather", TABLE, INDEX),
    case("Gather", TABLE, INDEX.astype(np.int32)),
    case("Gather", TABLE, const(1, -1)),
    case("Gather", X, INDEX[:, :2] % 2, axis=2),
    case("Gather", X, np.array(1), axis=2),
    case("GatherElements", X, np.zeros((2, 1, 5), dtype=np.int64), axis=1),
    case("GatherElements", X, Const(np.ones((2, 6, 2), dtype=np.int64)), axis=2),
    case("GatherElements", X, Const(np.full((2, 6, 2), 1, dtype=np.int32)), axis=2),
    *(case("Pad", X, const(0, 1, 2, 0, 0, 1), opset=opset) for opset in (11, 13, 18)),
    case("Pad", X, const(0, 1, 2, 0, 0, 1), scalar(1.5)),
    case("Pad", X, const(0, 1, -1, 0, 0, -2), scalar(1.5)),
    case("Pad", X, const(1, 2), None, const(-1), opset=18),
    case("Pad", X, const(1, 0, 0, 2), scalar(0.5), const(2, 1), opset=18),
    case("Pad", X, opset=10, pads=[0, 0, 1, 0, 0, 2], value=2.0),
    case("Pad", IMAGES, const(0, 0, 1, 2, 0, 0, 2, 1)),
    *(
        case("Pad", IMAGES, const(*pads), mode=mode, opset=19)
        for mode in ("reflect", "edge", "wrap")
        for pads in ((0, 0, 1, 2, 0, 0, 2, 1), (0, 0, 0, 2, 0, 0, 0, 1), (0, 0, 1, 0, 0, 0, 0, 0),
                     (0,) * 8)
    ),
    *(case("Pad", X, const(0, 0, 1, 0, 0, 2), mode=mode) for mode in ("reflect", "edge")),
    case("Pad", np.arange(6).reshape(2, 3), const(0, 1, 0, 1), scalar(7, np.int64)),
    *(case("Trilu", X, upper=upper) for upper in (0, 1)),
    *(case("Trilu", X, scalar(k, np.int64), upper=0) for k in (-1, 2)),
]  # fmt: skip


@pytest.mark.parametrize("example", CASES, ids=str)
def test_as_in_onnx_runtime(example: Case) -> None:
    check_equal(example)


REFUSED = [
    (case("Slice", X, const(4), const(1), const(1), const(-1)), "reads backwards from 4 to 1"),
    (case("Slice", X, const(-1), const(2), const(1), const(-1)), "reads backwards"),
    (case("Pad", IMAGES, const(0, 1, 1, 0, 0, 0, 0, 0), mode="reflect"), "batch or channels"),
    (case("GatherElements", X, Const(np.full((2, 6, 2), -1)), axis=2), "count from the end"),
    (case("GatherND", X, Const(np.array([[0, 1]]))), "no function for it"),
    (case("Slice", X, np.array([1]), np.array([3])), "must be a size"),
]


@pytest.mark.parametrize(("example", "reason"), REFUSED, ids=str)
def test_refused(example: Case, reason: str) -> None:
    check_refused(example, reason)


LIMIT = st.one_of(st.integers(-9, 9), st.sampled_from([INT32, INT64, -INT32 - 1, -INT64]))


@settings(max_examples=120, deadline=None, derandomize=True)
@given(start=LIMIT, end=LIMIT, step=st.sampled_from([1, 1, 2, 3, -1, -2]), axis=st.integers(-3, 2))
def test_any_slice(start: int, end: int, step: int, axis: int) -> None:
    """Every slice is either refused, or equal to ONNX Runtime."""
    example = case("Slice", X, const(start), const(end), const(axis), const(step))
    try:
        actual = run_network(model_of(example), feeds_of(example))
    except CaptureError:
        return
    assert_equal(actual, run_file(model_of(example), feeds_of(example)))
