"""`Interpolation` and the assembly of `T`."""

import pytest
import torch
from tests.linalg.matrices import normal

from interpress.linalg import Interpolation
from interpress.linalg.interpolation import interpolation_matrix


def test_identity_at_kept_columns_and_coefficients_elsewhere() -> None:
    kept, outside = torch.tensor([3, 0]), torch.tensor([1, 2])
    coefficients = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    T = interpolation_matrix(kept, outside, coefficients)
    assert T.tolist() == [[0.0, 1.0, 2.0, 1.0], [1.0, 3.0, 4.0, 0.0]]


def test_a_kept_dependent_column_gets_the_identity() -> None:
    kept, outside = torch.tensor([3, 0, 2]), torch.tensor([1, 2, 0])
    coefficients = torch.tensor([[5.0, 6.0, 7.0]])  # of column 3, the only basis column
    T = interpolation_matrix(kept, outside, coefficients, basis=torch.tensor([0]))
    assert T.tolist() == [[0.0, 5.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]


def test_errors_and_norms_follow_their_definitions() -> None:
    Z, kept = normal(30, 6), torch.tensor([4, 1, 0])
    T = torch.linalg.lstsq(Z[:, kept], Z).solution
    T[:, kept] = torch.eye(3, dtype=torch.float64)
    error = Z - Z[:, kept] @ T
    result = Interpolation(kept, T, lambda: error)
    assert (result.k, result.n) == (3, 6)
    assert result.frobenius_error == pytest.approx(float(error.norm()), rel=1e-12)
    assert result.spectral_error == pytest.approx(float(torch.linalg.matrix_norm(error, 2)))
    dropped = T[:, [2, 3, 5]]
    assert result.T_norm == pytest.approx(float(dropped.norm()), rel=1e-12)
    assert result.largest_entry == float(dropped.abs().max())


def test_errors_are_zero_if_all_columns_are_kept() -> None:
    result = Interpolation(torch.arange(3), torch.eye(3), lambda: torch.zeros(0, 0))
    assert (result.frobenius_error, result.spectral_error) == (0.0, 0.0)
    assert (result.T_norm, result.largest_entry) == (0.0, 0.0)


def test_the_residual_is_computed_once_and_only_if_an_error_is_read() -> None:
    calls = []

    def compute() -> torch.Tensor:
        calls.append(1)
        return torch.ones(2, 2)

    result = Interpolation(torch.arange(2), torch.eye(2), compute)
    assert not calls
    assert result.frobenius_error == pytest.approx(2.0)
    assert result.spectral_error == pytest.approx(2.0)
    assert len(calls) == 1
