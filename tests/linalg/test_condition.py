"""The estimated condition number finds where the columns become dependent."""

import pytest
import torch
from tests.linalg.matrices import normal

from interpress.linalg.condition import well_conditioned_count
from interpress.linalg.factor import triangle


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_count_stops_before_a_nearly_dependent_column(dtype: torch.dtype) -> None:
    Z = normal(90, 40)
    Z[:, 25] = Z[:, 3] + 1e-4 * Z[:, 25]
    assert well_conditioned_count(triangle(Z.to(dtype)), 1e3) == 25


def test_the_lengths_of_the_columns_do_not_matter() -> None:
    Z = normal(90, 40) * torch.logspace(0, -9, 40, dtype=torch.float64)
    assert well_conditioned_count(triangle(Z), 1e3) == 40


def test_at_least_one_column_counts() -> None:
    assert well_conditioned_count(torch.tensor([[2.0, 1.0]]), 1e-3) == 1


def test_the_count_does_not_depend_on_rows_that_follow() -> None:
    R = triangle(normal(90, 40) * torch.logspace(0, -3, 40, dtype=torch.float64))
    count = well_conditioned_count(R, 3.0)
    assert 1 < count < 35
    assert well_conditioned_count(R[:35], 3.0) == count
