"""Convolutions are read as ONNX Runtime computes them."""

import pytest
from tests.onnx_files.harness import Case, case, check_equal, check_refused, rand, weight

IMAGES = rand(2, 4, 9, 8)
SERIES = rand(2, 4, 11)
VOLUMES = rand(2, 2, 5, 6, 7)

WEIGHTS = weight(6, 4, 3, 3)
CASES = [
    case("Conv", IMAGES, WEIGHTS),
    case("Conv", IMAGES, WEIGHTS, weight(6)),
    case("Conv", IMAGES, WEIGHTS, opset=7),
    case("Conv", IMAGES, weight(6, 4, 1, 1), kernel_shape=[1, 1]),
    case("Conv", IMAGES, weight(6, 2, 3, 3), group=2, pads=[1, 1, 1, 1]),
    case("Conv", IMAGES, weight(8, 1, 3, 3), weight(8), group=4, strides=[2, 2]),
    case("Conv", IMAGES, WEIGHTS, pads=[0, 1, 2, 1], strides=[2, 1]),
    case("Conv", IMAGES, WEIGHTS, pads=[1, 2, 1, 2], dilations=[2, 2]),
    case("Conv", SERIES, weight(5, 4, 3), weight(5), pads=[2, 0]),
    case("Conv", SERIES, weight(5, 4, 4), strides=[3]),
    case("Conv", VOLUMES, weight(3, 2, 3, 2, 1), strides=[1, 2, 2], pads=[1, 0, 0, 1, 1, 0]),
    *(
        case("Conv", images, WEIGHTS if kernel == 3 else weight(6, 4, kernel, kernel),
             auto_pad=mode, strides=[stride, stride])
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
        for images in (IMAGES, rand(1, 4, 8, 8))
        for kernel, stride in ((3, 1), (3, 2), (2, 1), (2, 2), (1, 2))
    ),
]  # fmt: skip

BACK = weight(4, 6, 3, 3)
TRANSPOSED = [
    case("ConvTranspose", IMAGES, BACK),
    case("ConvTranspose", IMAGES, BACK, weight(6), strides=[2, 2], pads=[1, 1, 1, 1]),
    case("ConvTranspose", IMAGES, BACK, strides=[2, 3], output_padding=[1, 2]),
    case("ConvTranspose", IMAGES, BACK, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
    case("ConvTranspose", IMAGES, BACK, strides=[2, 2], pads=[1, 1, 0, 0]),
    case("ConvTranspose", IMAGES, BACK, strides=[3, 3], pads=[0, 0, 1, 1],
         output_padding=[2, 1]),
    case("ConvTranspose", IMAGES, weight(4, 3, 2, 2), group=2, strides=[2, 2]),
    case("ConvTranspose", IMAGES, BACK, dilations=[2, 1], pads=[1, 0, 1, 0]),
    case("ConvTranspose", IMAGES, BACK, auto_pad="VALID"),
    case("ConvTranspose", SERIES, weight(4, 5, 4), strides=[2], pads=[1, 1]),
    case("ConvTranspose", VOLUMES, weight(2, 3, 2, 2, 2), strides=[2, 1, 2]),
]  # fmt: skip


@pytest.mark.parametrize("example", [*CASES, *TRANSPOSED], ids=str)
def test_as_in_onnx_runtime(example: Case) -> None:
    check_equal(example)


REFUSED = [
    (case("ConvTranspose", IMAGES, BACK, output_shape=[18, 16], strides=[2, 2]), "by the shape"),
    (case("ConvTranspose", IMAGES, BACK, auto_pad="SAME_UPPER", strides=[2, 2]), "by the shape"),
    (case("Conv", IMAGES, weight(6, 4, 1, 1), strides=[1, 3], auto_pad="SAME_UPPER"),
     "strides of 3 for a window of 1"),
    (case("ConvTranspose", IMAGES, BACK, pads=[0, 0, 1, 1]), "cannot be said in PyTorch"),
]  # fmt: skip


@pytest.mark.parametrize(("example", "reason"), REFUSED, ids=str)
def test_refused(example: Case, reason: str) -> None:
    check_refused(example, reason)
