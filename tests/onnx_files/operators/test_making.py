"""Operators that make tensors are read as ONNX Runtime computes them."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.onnx_files.harness import (
    Case,
    Const,
    assert_equal,
    case,
    check_equal,
    check_refused,
    const,
    model_from,
    model_of,
    rand,
    run_file,
    run_network,
    scalar,
    tensor_input,
)

X = 3 * rand(2, 3, 4)
WHOLE = np.arange(-3, 3)


def filled(value: float, kind: int) -> object:
    return helper.make_tensor("value", kind, [1], [value])


CASES = [
    *(
        case("Cast", array, to=kind)
        for array in (X, WHOLE, WHOLE.astype(np.int32), WHOLE > 0)
        for kind in (TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL,
                     TensorProto.DOUBLE, TensorProto.FLOAT16)
    ),
    case("Cast", np.abs(X), to=TensorProto.UINT8),
    case("CastLike", X, WHOLE),
    case("CastLike", WHOLE, X),
    case("CastLike", WHOLE, scalar(1.0)),
]  # fmt: skip


@pytest.mark.parametrize("example", CASES, ids=str)
def test_as_in_onnx_runtime(example: Case) -> None:
    check_equal(example)


REFUSED = [
    (case("Cast", X, to=TensorProto.STRING), "casts to the element type 8"),
    (case("EyeLike", rand(3, 4), k=1), "other diagonal"),
    (case("ConstantOfShape", np.array([2, 3])), "must be a size"),
    (case("RandomNormalLike", X), "no function for it"),
]


@pytest.mark.parametrize(("example", "reason"), REFUSED, ids=str)
def test_refused(example: Case, reason: str) -> None:
    check_refused(example, reason)


MADE = [
    case("ConstantOfShape", const(3, 4)),
    case("ConstantOfShape", const(4), value=filled(1.5, TensorProto.FLOAT)),
    case("ConstantOfShape", const(3, 1), value=filled(7, TensorProto.INT64)),
    case("ConstantOfShape", const(), value=filled(2, TensorProto.FLOAT)),
    case("ConstantOfShape", const(4), value=filled(1, TensorProto.BOOL)),
    case("Range", *(scalar(n, np.int64) for n in (1, 9, 3))),
    case("Range", *(scalar(n, np.int64) for n in (5, 0, -2))),
    case("Range", *(scalar(n, np.int32) for n in (0, 4, 1))),
    case("Range", *(scalar(n) for n in (0.0, 2.0, 0.3))),
    case("Shape", scalar(1.0)),
    case("Shape", const(1, 2, 3)),
    case("Shape", const(1, 2, 3), start=0, end=-1, opset=15),
    case("Size", const(1, 2, 3)),
    case("EyeLike", Const(rand(3, 4))),
    case("EyeLike", Const(rand(3, 4)), dtype=TensorProto.INT64),
    case("EyeLike", Const(WHOLE.reshape(2, 3))),
]


@pytest.mark.parametrize("example", MADE, ids=str)
def test_constants_are_folded(example: Case) -> None:
    """A file returns the constant, and its sum with an input, so that there is a network."""
    lone = model_of(example)
    nodes = [
        *lone.graph.node,
        helper.make_node("Cast", ["o0"], ["made"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["made", "x"], ["y"]),
    ]
    inputs = [tensor_input("x", 1)]
    model = model_from(nodes, inputs, ["y", "o0"], lone.graph.initializer, example.opset)
    feeds = {"x": rand(1)}
    assert_equal(run_network(model, feeds), run_file(model, feeds))
