"""Arithmetic, comparisons and logic are read as ONNX Runtime computes them."""

import numpy as np
import pytest
import torch
from onnx import helper, numpy_helper
from tests.onnx_files.harness import (
    Case,
    assert_equal,
    case,
    check_equal,
    check_refused,
    const,
    model_from,
    rand,
    run_file,
    run_network,
    scalar,
    tensor_input,
    weight,
)

from interpress.errors import CaptureError
from interpress.onnx_files.read import read_onnx

X, Y = rand(2, 3, 4), rand(2, 3, 4, seed=2)
WHOLE = np.array([[-7, -3, 0, 4, 9, 12]])
DIVISOR = np.array([[2, -2, 3, 3, -4, 5]])

CASES = [
    *(
        case(name, X, other)
        for name in ("Add", "Sub", "Mul", "Div")
        for other in (Y, rand(4), rand(3, 1), weight(2, 3, 4), weight(3, 1), weight(1), scalar(0.7),
                      weight(1, 1, 1, 1))
    ),
    *(case(name, weight(3, 1), X) for name in ("Add", "Sub", "Mul", "Div")),
    *(case(name, scalar(0.7), X) for name in ("Add", "Sub", "Mul", "Div")),
    *(
        case(name, WHOLE, other)
        for name in ("Add", "Sub", "Mul", "Div", "Mod", "Equal", "Greater")
        for other in (DIVISOR, const(3), scalar(3, np.int64), scalar(-3, np.int64))
    ),
    *(case(name, np.array(1.5, np.float32), const(2, dtype=np.float32)) for name in ("Add", "Pow")),
    *(
        case(name, X, other)
        for name in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
        for other in (Y, X, scalar(0.0), weight(4))
    ),
    *(case(name, X > 0, Y > 0) for name in ("And", "Or", "Xor")),
    case("Pow", X, scalar(2.0)),
    case("Pow", X, scalar(2, np.int64)),
    case("Pow", np.abs(X), scalar(0.5)),
    case("Pow", np.abs(X), Y),
    case("Pow", np.array([1, 4, 9]), scalar(2, np.int64)),
    case("Pow", scalar(2.0), X),
    case("Mod", X, Y, fmod=1),
    case("Mod", WHOLE, DIVISOR, fmod=1),
    *(case(name, X, Y) for name in ("Max", "Min", "Sum", "Mean")),
    *(case(name, X) for name in ("Max", "Min", "Sum", "Mean")),
    *(case(name, X, rand(4), weight(3, 1)) for name in ("Max", "Min", "Sum", "Mean")),
    case("Max", WHOLE, const(3)),
    case("Where", X > 0, X, Y),
    case("Where", X > 0, X, scalar(0.0)),
    case("Where", X[:1, :, :1] > 0, X, weight(4)),
    case("Where", X > 0, scalar(-np.inf), X),
]  # fmt: skip


@pytest.mark.parametrize("example", CASES, ids=str)
def test_as_in_onnx_runtime(example: Case) -> None:
    check_equal(example)


def test_a_bias_after_a_product_becomes_that_of_a_linear_layer() -> None:
    model = model_from(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["b", "h"], ["y"])],
        [tensor_input("x", "n", 5, 4)],
        ["y"],
        [
            numpy_helper.from_array(rand(4, 6), "w"),
            numpy_helper.from_array(rand(6), "b"),
        ],
    )
    network = read_onnx(model)
    calls = [node.target for node in network.graph.nodes if node.op == "call_function"]
    assert calls == [torch.ops.aten.t.default, torch.ops.aten.linear.default]
    feeds = {"x": rand(3, 5, 4)}
    assert_equal(run_network(model, feeds), run_file(model, feeds))


def test_broadcasting_as_before_opset_7_is_refused() -> None:
    node = helper.make_node("Add", ["x", "b"], ["y"], broadcast=1, axis=1)
    bias = numpy_helper.from_array(rand(3), "b")
    model = model_from([node], [tensor_input("x", 2, 3, 4)], ["y"], [bias], opset=6)
    with pytest.raises(CaptureError, match="broadcasts as before opset 7"):
        read_onnx(model)


@pytest.mark.parametrize("power", [scalar(0.5), np.array([0.5, 2, 1], np.float32)])
def test_a_broken_power_of_whole_numbers_is_refused(power: object) -> None:
    check_refused(case("Pow", np.array([1, 4, 9]), power), "not whole")


def test_an_operator_that_is_not_known_is_refused() -> None:
    check_refused(case("BitShift", np.array([1, 2], np.uint8), np.array([1, 1], np.uint8),
                       direction="LEFT"), "no function for it")  # fmt: skip
