"""Floors, ranges and checks of the arithmetic."""

import pytest
import torch

from interpress.errors import ArgumentError, DataError
from interpress.linalg.precision import (
    EPS64,
    as_square,
    check_range,
    exact_dtype,
    gram_floor,
    has_fast_float64,
    largest_magnitude,
    root_floor,
)


def test_floors_grow_with_columns_additions_and_rows() -> None:
    assert gram_floor(64) < gram_floor(256)
    assert gram_floor(64) < gram_floor(64, additions=100)
    assert gram_floor(64) < gram_floor(64, rows=100)
    assert gram_floor(64, rows=512) == gram_floor(64, rows=10**6)  # rows of one product
    assert 1e-8 < gram_floor(128, rows=10**6) < 3e-7
    assert root_floor(64) == pytest.approx(33 * EPS64)


def test_a_cpu_has_fast_float64_and_mps_has_none() -> None:
    assert has_fast_float64(torch.device("cpu"))
    assert not has_fast_float64(torch.device("mps"))
    assert exact_dtype(torch.device("cpu")) == torch.float64
    assert exact_dtype(torch.device("mps")) == torch.float32


def test_largest_magnitude_is_the_maximum_norm() -> None:
    matrix = torch.tensor([[1.0, -7.0], [3.0, 2.0]])
    assert largest_magnitude(matrix) == 7.0
    assert largest_magnitude(matrix[:0]) == 0.0
    matrix[0, 0] = torch.nan
    assert largest_magnitude(matrix) != largest_magnitude(matrix)  # NaN


def test_bad_entries_are_located() -> None:
    matrix = torch.zeros(4, 3)
    matrix[2, 1] = torch.inf
    with pytest.raises(DataError, match="1 NaN or Inf entries, the first at row 2, column 1"):
        check_range(matrix)


@pytest.mark.parametrize("value", [1e150, 1e-150])
def test_only_squares_limit_the_range(value: float) -> None:
    matrix = torch.full((2, 2), value, dtype=torch.float64)
    check_range(matrix)
    with pytest.raises(DataError, match="float64 cannot hold its square; scale the data"):
        check_range(matrix, squared=True)


def test_square_matrices_are_checked() -> None:
    matrix = torch.eye(3, requires_grad=True)
    assert not as_square(matrix, 3, "H").requires_grad
    with pytest.raises(ArgumentError, match=r"H has shape \(3, 3\); it must be \(4, 4\)"):
        as_square(matrix, 4, "H")
