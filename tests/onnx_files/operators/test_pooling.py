"""Pooling is read as ONNX Runtime computes it."""

import pytest
from tests.onnx_files.harness import Case, case, check_equal, check_refused, rand

IMAGES = rand(2, 3, 9, 8)
SERIES = rand(2, 3, 11)
VOLUMES = rand(2, 2, 5, 6, 7)

COMMON = [
    {"kernel_shape": [2, 2]},
    {"kernel_shape": [3, 2], "strides": [2, 2]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
    {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
    {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 3], "auto_pad": "VALID", "strides": [2, 2]},
    {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER"},
]  # fmt: skip
UNEQUAL = [
    {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 1, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER", "ceil_mode": 1},
    {"kernel_shape": [2, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [2, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
]  # fmt: skip

CASES = [
    *(case("MaxPool", IMAGES, opset=12, **words) for words in [*COMMON, *UNEQUAL]),
    *(case("MaxPool", IMAGES, opset=22, **words) for words in [*COMMON, *UNEQUAL]),
    *(
        case("AveragePool", IMAGES, opset=opset, **words, **counted)
        for opset in (11, 19, 22)
        for words in COMMON
        for counted in ({}, {"count_include_pad": 1})
    ),
    case("AveragePool", IMAGES, kernel_shape=[2, 2], opset=7),
    case("MaxPool", IMAGES, kernel_shape=[2, 2], opset=7, strides=[2, 2]),
    case("MaxPool", IMAGES, kernel_shape=[2, 2], dilations=[2, 3]),
    case("MaxPool", IMAGES, kernel_shape=[3, 3], dilations=[2, 2], ceil_mode=1, strides=[2, 2]),
    case("MaxPool", IMAGES, kernel_shape=[2, 2], storage_order=1),
    case("MaxPool", SERIES, kernel_shape=[3], strides=[2], pads=[1, 1]),
    case("MaxPool", SERIES, kernel_shape=[3], strides=[2], pads=[0, 1]),
    case("MaxPool", VOLUMES, kernel_shape=[3, 2, 1], strides=[1, 2, 2]),
    case("AveragePool", SERIES, kernel_shape=[3], strides=[2], pads=[1, 1]),
    case("AveragePool", VOLUMES, kernel_shape=[3, 2, 1], strides=[1, 2, 2]),
    *(case(name, x) for name in ("GlobalAveragePool", "GlobalMaxPool")
      for x in (IMAGES, SERIES, VOLUMES)),
]  # fmt: skip


@pytest.mark.parametrize("example", CASES, ids=str)
def test_as_in_onnx_runtime(example: Case) -> None:
    check_equal(example)


@pytest.mark.parametrize("words", UNEQUAL, ids=str)
@pytest.mark.parametrize("opset", [11, 22])
def test_unequal_padding_that_counts(words: dict[str, object], opset: int) -> None:
    check_equal(case("AveragePool", IMAGES, opset=opset, count_include_pad=1, **words))


REFUSED = [
    (Case("MaxPool", [IMAGES], {"kernel_shape": [2, 2]}, outputs=2), "its indices are read"),
    (case("MaxPool", IMAGES, kernel_shape=[2, 2], strides=[3, 3], pads=[0, 0, 1, 1], ceil_mode=1),
     "a window that starts in unequal padding"),
    (case("MaxPool", IMAGES, kernel_shape=[3, 3], pads=[2, 2, 2, 2]), "more than half"),
    (case("AveragePool", IMAGES, opset=19, kernel_shape=[2, 2], dilations=[2, 2]), "has dilations"),
    (case("AveragePool", IMAGES, kernel_shape=[2, 2], pads=[0, 0, 1, 1]), "two ends of a dim"),
    (case("AveragePool", IMAGES, kernel_shape=[3, 3], pads=[2, 2, 2, 2]), "more than half"),
    (case("LpPool", IMAGES, kernel_shape=[2, 2]), "no function for it"),
]  # fmt: skip


@pytest.mark.parametrize(("example", "reason"), REFUSED, ids=str)
def test_refused(example: Case, reason: str) -> None:
    check_refused(example, reason)
