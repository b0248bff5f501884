"""Matrix products are read as ONNX Runtime computes them."""

import numpy as np
import pytest
from tests.onnx_files.harness import Case, case, check_equal, rand, scalar, weight

ROWS = rand(3, 4)
STACK = rand(2, 5, 3, 4)

CASES = [
    *(
        case("Gemm", ROWS.T.copy() if flip_a else ROWS,
             weight(5, 4) if flip_b else weight(4, 5), *bias,
             transA=flip_a, transB=flip_b, **factors)
        for flip_a in (0, 1)
        for flip_b in (0, 1)
        for bias in ((), (weight(5),), (weight(1, 5),), (weight(3, 5),), (weight(3, 1),),
                     (weight(1),), (scalar(0.5),), (rand(3, 5),))
        for factors in ({}, {"alpha": 0.5}, {"alpha": 2.0, "beta": 0.25}, {"beta": 0.0})
    ),
    case("Gemm", ROWS, weight(4, 5), weight(5), opset=7),
    case("Gemm", weight(3, 4), rand(4, 5)),
    case("MatMul", ROWS, weight(4, 5)),
    case("MatMul", STACK, weight(4, 5)),
    case("MatMul", STACK, weight(5, 4, 6)),
    case("MatMul", STACK, weight(4)),
    case("MatMul", rand(4), weight(4, 5)),
    case("MatMul", weight(6, 3), STACK),
    case("MatMul", STACK, rand(2, 5, 4, 3)),
    case("MatMul", rand(4), rand(4)),
    case("MatMul", np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4)),
    case("Einsum", ROWS, weight(4, 5), equation="ij,jk->ik"),
    case("Einsum", STACK, rand(2, 5, 4, 3), equation="bhqd, bhdk -> bhqk"),
    case("Einsum", STACK, equation="...ij->...ji"),
    case("Einsum", ROWS, rand(3, 4), equation="ij,ij"),
]  # fmt: skip


@pytest.mark.parametrize("example", CASES, ids=str)
def test_as_in_onnx_runtime(example: Case) -> None:
    check_equal(example)
