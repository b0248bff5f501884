"""SciPy's BLAS on torch tensors, compared with torch; contiguous, strided and empty arguments."""

import pytest
import torch
from tests.linalg.matrices import normal
from torch import Tensor

from interpress.linalg.cpu_blas import solve_upper, subtract_product, upper_gram

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


@DTYPES
def test_the_upper_triangle_of_a_gram_matrix(dtype: torch.dtype) -> None:
    Z = normal(40, 300).to(dtype)
    torch.testing.assert_close(upper_gram(Z).triu(), (Z.T @ Z).triu())


@DTYPES
@pytest.mark.parametrize("others", [0, 7])
def test_the_solution_of_a_triangular_system(others: int, dtype: torch.dtype) -> None:
    R = (normal(20, 20 + others).triu() + 20 * torch.eye(20, 20 + others)).to(dtype)
    before = R.clone()
    solution = solve_upper(R[:, :20], R[:, 20:])  # neither of them is contiguous
    torch.testing.assert_close(R[:, :20] @ solution, R[:, 20:])
    assert torch.equal(R, before)


@DTYPES
@pytest.mark.parametrize("shape", [(30, 5, 12), (30, 0, 12), (0, 5, 12), (30, 5, 0)])
def test_the_difference_to_a_product(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    rows, inner, columns = shape
    C, A = normal(rows, columns).to(dtype), normal(rows, inner, 1).to(dtype)
    B = normal(inner, columns, 2).to(dtype)
    expected: Tensor = C - A @ B
    result = subtract_product(C, A, B)
    assert result is C
    torch.testing.assert_close(C, expected)
