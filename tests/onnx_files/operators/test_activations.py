"""Activation functions are read as ONNX Runtime computes them."""

import numpy as np
import pytest
from tests.onnx_files.harness import (
    Case,
    case,
    check_equal,
    check_refused,
    const,
    rand,
    scalar,
    weight,
)

X = 3 * rand(2, 3, 4)
POSITIVE = np.abs(X) + 0.1
HALVES = np.array([[-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.0, -0.0]], dtype=np.float32)

CASES = [
    *(
        case(name, X, opset=20)
        for name in (
            "Relu", "Sigmoid", "Tanh", "Erf", "Softplus", "Exp", "Abs", "Neg", "Floor", "Ceil",
            "Sin", "Cos", "Sign", "Mish", "HardSwish", "Identity", "Atan", "Softsign", "LeakyRelu",
            "Elu", "Celu", "Selu", "ThresholdedRelu", "Gelu", "HardSigmoid", "Dropout",
        )
    ),
    *(case(name, POSITIVE) for name in ("Log", "Sqrt", "Reciprocal")),
    case("Round", HALVES),
    case("IsNaN", np.array([1.0, np.nan], dtype=np.float32)),
    case("Not", X > 0),
    case("Relu", X, opset=7),
    case("LeakyRelu", X, alpha=0.2),
    case("LeakyRelu", X, alpha=0.0),
    case("Elu", X, alpha=0.5),
    case("Celu", X, alpha=2.0),
    case("Selu", X, alpha=1.5, gamma=1.1),
    case("Selu", X, gamma=0.9),
    case("ThresholdedRelu", X, alpha=0.3),
    case("Gelu", X, opset=20, approximate="tanh"),
    Case("Gelu", [X], domain="com.microsoft"),
    Case("QuickGelu", [X], domain="com.microsoft"),
    Case("QuickGelu", [X], {"alpha": 1.0}, domain="com.microsoft"),
    case("HardSigmoid", X, alpha=0.4, beta=0.3),
    case("PRelu", X, weight(3, 1)),
    case("PRelu", X, weight(4)),
    case("PRelu", X, weight(1)),
    case("PRelu", rand(2, 3, 4, 5), weight(3, 1, 1), opset=9),
    case("Dropout", X, opset=7, ratio=0.5),
    case("Dropout", X, scalar(0.5), opset=13),
    case("Dropout", X, scalar(0.5), scalar(False, bool), opset=13),
    case("Clip", X),
    case("Clip", X, scalar(-1.0), scalar(1.0)),
    case("Clip", X, None, scalar(1.0)),
    case("Clip", X, scalar(-1.0), None),
    case("Clip", X, scalar(1.0), scalar(-1.0)),
    case("Clip", X, opset=10, min=-0.5, max=6.0),
    case("Clip", X, opset=6, min=-0.5),
    case("Clip", np.arange(6), scalar(1, np.int64), scalar(4, np.int64)),
    *(
        case(name, rand(2, 3, 4, 5), opset=opset, **axis)
        for name in ("Softmax", "LogSoftmax")
        for opset in (11, 13)
        for axis in ({}, {"axis": 0}, {"axis": 1}, {"axis": 2}, {"axis": 3}, {"axis": -1},
                     {"axis": -2})
    ),
    case("Softmax", rand(2, 7), opset=9),
    case("Softmax", rand(7), opset=11, axis=0),
]  # fmt: skip


@pytest.mark.parametrize("example", CASES, ids=str)
def test_as_in_onnx_runtime(example: Case) -> None:
    check_equal(example)


REFUSED = [
    (Case("Dropout", [X], opset=13, outputs=2), "its mask is read"),
    (case("Hardmax", X), "no function for it"),
    (Case("FastGelu", [X, weight(4)], domain="com.microsoft"), "no function for it"),
]


@pytest.mark.parametrize(("example", "reason"), REFUSED, ids=str)
def test_refused(example: Case, reason: str) -> None:
    check_refused(example, reason)


def test_dropout_in_training_mode_is_refused() -> None:
    example = case("Dropout", X, scalar(0.0), scalar(True, bool))
    check_refused(example, "training mode")


def test_a_clip_whose_bounds_are_computed_is_refused() -> None:
    limits = const(1.0, dtype=np.float32).value.reshape(())
    check_refused(case("Clip", X, limits), "must be a size")
