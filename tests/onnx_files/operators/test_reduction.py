"""Reductions are read as ONNX Runtime computes them."""

import numpy as np
import pytest
from tests.onnx_files.harness import Case, case, check_equal, check_refused, const, rand, scalar

X = rand(2, 3, 4)
WHOLE = np.arange(24).reshape(2, 3, 4) % 7
SUMS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2",
        "ReduceSumSquare", "ReduceLogSumExp")  # fmt: skip

CASES = [
    *(
        case(name, X, opset=11, **words)
        for name in SUMS
        for words in ({}, {"axes": [1]}, {"axes": [-1]}, {"axes": [0, 2]}, {"axes": [-1, -2]},
                      {"axes": [1], "keepdims": 0}, {"keepdims": 0})
    ),
    *(
        case(name, X, *axes, opset=18, **words)
        for name in SUMS
        for axes in ((), (const(1),), (const(-1, 0),), (const(),))
        for words in ({}, {"keepdims": 0}, {"noop_with_empty_axes": 1})
    ),
    case("ReduceSum", X, const(2), opset=13),
    *(case(name, WHOLE, opset=13, **({} if name == "ReduceSum" else {"axes": [1]}))
      for name in ("ReduceSum", "ReduceMax", "ReduceMin")),
    case("ReduceProd", X, axes=[1]),
    case("ReduceProd", X, const(-1), opset=18, keepdims=0),
    case("ReduceProd", rand(5)),
    *(
        case(name, X, **words)
        for name in ("ArgMax", "ArgMin")
        for words in ({}, {"axis": 1}, {"axis": -1, "keepdims": 0})
    ),
    case("ArgMax", np.array([[1.0, 3.0, 3.0, 0.0]], np.float32), axis=1),
    case("CumSum", X, scalar(1, np.int64)),
    case("CumSum", X, scalar(-1, np.int64)),
    case("CumSum", X, const(0)),
]  # fmt: skip


@pytest.mark.parametrize("example", CASES, ids=str)
def test_as_in_onnx_runtime(example: Case) -> None:
    check_equal(example)


REFUSED = [
    (case("ReduceProd", X, axes=[0, 1]), "multiplies over several dims"),
    (case("ReduceMean", WHOLE.astype(np.int32), axes=[1]), "whole numbers"),
    (case("ArgMax", X, select_last_index=1), "last of equal"),
    (case("CumSum", X, scalar(0, np.int64), exclusive=1), "exclusive or reversed"),
    (case("CumSum", X, scalar(0, np.int64), reverse=1), "exclusive or reversed"),
    (case("ReduceLogSum", np.abs(X)), "no function for it"),
    (case("ReduceSum", X, np.array([1]), opset=13), "must be a size"),
]


@pytest.mark.parametrize(("example", "reason"), REFUSED, ids=str)
def test_refused(example: Case, reason: str) -> None:
    check_refused(example, reason)
