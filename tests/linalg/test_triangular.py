"""Triangular solvers against dense ones."""

import torch
from tests.linalg.matrices import normal

from interpress.linalg.triangular import solve_truncated, solve_upper


def test_solve_upper_inverts_the_product() -> None:
    R11, X = normal(6, 6).triu() + 3 * torch.eye(6, dtype=torch.float64), normal(6, 4, 1)
    torch.testing.assert_close(solve_upper(R11, R11 @ X), X)


def test_truncated_solution_is_the_minimum_norm_least_squares_solution() -> None:
    R11, R12 = normal(6, 6).triu(), normal(6, 4, 1)
    R11[4:] = 1e-14 * R11[4:]  # rank 4 to working precision
    expected = torch.linalg.pinv(R11, rtol=1e-10) @ R12
    torch.testing.assert_close(solve_truncated(R11, R12, floor=1e-10), expected)
