"""Normalisation layers are read as ONNX Runtime computes them."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from tests.onnx_files.harness import (
    Case,
    Const,
    assert_equal,
    case,
    check_equal,
    check_refused,
    feeds_of,
    model_of,
    rand,
    run_network,
    weight,
)

from interpress.errors import CaptureError
from interpress.onnx_files.read import read_onnx

IMAGES = rand(2, 4, 5, 6)
TOKENS = rand(2, 5, 6)


def statistics(channels: int) -> list[Const]:
    variance = Const(np.abs(rand(channels, seed=5)) + 0.5)
    return [weight(channels), weight(channels, seed=3), weight(channels, seed=4), variance]


CASES = [
    *(case("BatchNormalization", x, *statistics(4), opset=opset)
      for x in (IMAGES, rand(2, 4), rand(2, 4, 7), rand(2, 4, 2, 3, 2)) for opset in (9, 14, 15)),
    case("BatchNormalization", IMAGES, *statistics(4), epsilon=0.1, momentum=0.5),
    case("BatchNormalization", IMAGES, *statistics(4), opset=7),
    *(case("InstanceNormalization", x, weight(4), weight(4, seed=3), **words)
      for x in (IMAGES, rand(2, 4, 7)) for words in ({}, {"epsilon": 0.1})),
    case("LayerNormalization", TOKENS, weight(6), weight(6, seed=3)),
    case("LayerNormalization", TOKENS, weight(6)),
    case("LayerNormalization", TOKENS, weight(6), axis=2, epsilon=0.1),
    case("LayerNormalization", TOKENS, weight(5, 6), weight(5, 6, seed=3), axis=1),
    case("LayerNormalization", TOKENS, weight(5, 6), weight(5, 6, seed=3), axis=-2),
    case("GroupNormalization", IMAGES, weight(4), weight(4, seed=3), num_groups=2, opset=21),
    case("GroupNormalization", IMAGES, weight(4), weight(4, seed=3), num_groups=4, opset=21,
         epsilon=0.1),
    case("LpNormalization", TOKENS),
    case("LpNormalization", TOKENS, p=1, axis=1),
    case("LpNormalization", np.array([[0, 0, 0], [3, 4, 0]], np.float32)),
]  # fmt: skip


@pytest.mark.parametrize("example", CASES, ids=str)
def test_as_in_onnx_runtime(example: Case) -> None:
    check_equal(example)


def test_rms_norm() -> None:
    for words, shape in (({}, (6,)), ({"axis": 1, "epsilon": 0.1}, (5, 6))):
        example = case("RMSNormalization", TOKENS, weight(*shape), opset=23, **words)
        model, feeds = model_of(example), feeds_of(example)
        expected = ReferenceEvaluator(model).run(None, {"i0": TOKENS})
        assert_equal(run_network(model, feeds), expected)


REFUSED = [
    (case("GroupNormalization", IMAGES, weight(2), weight(2), num_groups=2, opset=18),
     "scale is per group"),
    (case("BatchNormalization", IMAGES, weight(4), weight(4), rand(4), Const(np.ones(4, "f4"))),
     "is computed by the network"),
    (Case("LayerNormalization", [TOKENS, weight(6), weight(6)], outputs=3),
     "its mean or deviation is read"),
    (case("LRN", IMAGES, size=3), "no function for it"),
    (case("MeanVarianceNormalization", IMAGES), "no function for it"),
]  # fmt: skip


@pytest.mark.parametrize(("example", "reason"), REFUSED, ids=str)
def test_refused(example: Case, reason: str) -> None:
    check_refused(example, reason)


@pytest.mark.parametrize(
    ("example", "reason"),
    [
        (
            Case(
                "BatchNormalization", [IMAGES, *statistics(4)], {"training_mode": 1}, 15, outputs=3
            ),
            "training mode",
        ),
        (case("BatchNormalization", IMAGES, *statistics(4), opset=7, spatial=0), "spatial=0"),
        (case("LayerNormalization", TOKENS, weight(6), axis=1), "normalises over 2 dims"),
        (case("LayerNormalization", TOKENS, weight(5, 1), axis=1), "sizes that it normalises"),
        (case("RMSNormalization", TOKENS, weight(6), axis=1, opset=23), "normalises over 2 dims"),
        (case("RMSNormalization", TOKENS, rand(6), opset=23), "scale is computed"),
    ],
    ids=str,
)
def test_refused_although_onnx_runtime_may_not_run_it(example: Case, reason: str) -> None:
    with pytest.raises(CaptureError, match=reason):
        read_onnx(model_of(example))
