"""Spectral norms against torch's singular values."""

import pytest
import torch
from tests.linalg.matrices import MATRICES, normal

from interpress.linalg.norms import spectral_norm, spectral_norm_at_most


@pytest.mark.parametrize("matrix", [normal(9, 4), normal(4, 9), 1e-200 * normal(5, 5)])
def test_spectral_norm_is_the_largest_singular_value(matrix: torch.Tensor) -> None:
    assert spectral_norm(matrix) == pytest.approx(float(torch.linalg.svdvals(matrix)[0]), rel=1e-13)


def test_the_bound_is_checked_sharply() -> None:
    matrix = MATRICES["decaying"]
    norm = spectral_norm(matrix)
    assert spectral_norm_at_most(matrix, norm * (1 + 1e-9))
    assert not spectral_norm_at_most(matrix, norm * (1 - 1e-9))


def test_zero_and_empty_matrices() -> None:
    assert spectral_norm(torch.zeros(3, 2)) == 0.0
    assert spectral_norm(torch.zeros(0, 2)) == 0.0
    assert spectral_norm_at_most(torch.zeros(3, 2), 0.0)
    assert not spectral_norm_at_most(torch.zeros(3, 2), -1.0)
    assert not spectral_norm_at_most(torch.ones(3, 2), -1.0)
