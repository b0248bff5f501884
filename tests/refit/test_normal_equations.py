"""Normal equations of a ridge regression, against the regression solved directly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from interpress.refit.normal_equations import NormalEquations, second_moments

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(2, 90, 6, generator=GENERATOR, dtype=torch.float64)  # (groups, rows, unknowns)
RESIDUAL = torch.randn(2, 90, 3, generator=GENERATOR, dtype=torch.float64)
WEIGHTS = torch.rand(90, 1, generator=GENERATOR, dtype=torch.float64) + 0.5


def parts(residual: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield a residual in slices of 40 rows."""
    for start in range(0, residual.shape[1], 40):
        rows = slice(start, min(start + 40, residual.shape[1]))
        yield rows, residual[:, rows]


def direct(group: int, weights: Tensor | None, shifts: bool, ridge: float) -> tuple[Tensor, Tensor]:
    """Return change and shift from least squares with rows for the ridge."""
    w = torch.ones(90, 1, dtype=torch.float64) if weights is None else weights
    x, y = X[group], RESIDUAL[group]
    means = [(w * v).sum(0) / w.sum() if shifts else v.new_zeros(v.shape[1]) for v in (x, y)]
    x, y = x - means[0], y - means[1]
    root = (ridge * (w * x.square()).sum(0).mean()).sqrt()
    rows = torch.cat([w.sqrt() * x, root * torch.eye(6, dtype=torch.float64)])
    targets = torch.cat([w.sqrt() * y, torch.zeros(6, 3, dtype=torch.float64)])
    change = torch.linalg.lstsq(rows, targets).solution
    return change, means[1] - means[0] @ change


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("shifts", [False, True])
@pytest.mark.parametrize("ridge", [3e-1, 3e-4])
def test_the_solution_is_that_of_ridge_regression(
    weights: Tensor | None, shifts: bool, ridge: float
) -> None:
    normal = NormalEquations(X, weights, shifts)
    change, shift = normal.solve(normal.sides(parts(RESIDUAL.clone())), ridge)
    for group in range(2):
        expected_change, expected_shift = direct(group, weights, shifts, ridge)
        torch.testing.assert_close(change[group], expected_change, rtol=1e-6, atol=1e-9)
        if shifts:
            torch.testing.assert_close(shift[group, 0], expected_shift, rtol=1e-6, atol=1e-9)
        else:
            assert not bool(shift.any())


def test_the_ridge_pulls_the_total_change_towards_zero() -> None:
    """A large ridge undoes the change so far."""
    normal = NormalEquations(X, None, False)
    so_far = torch.ones(2, 6, 3, dtype=torch.float64)
    change, _ = normal.solve(normal.sides(parts(torch.zeros_like(RESIDUAL))), 1e9, so_far)
    torch.testing.assert_close(change, -so_far, rtol=1e-6, atol=1e-6)


def test_constant_inputs_do_not_fail() -> None:
    normal = NormalEquations(torch.zeros(1, 50, 4), None, True)
    change, shift = normal.solve(normal.sides(parts(torch.ones(1, 50, 2))), 3e-1)
    assert not bool(change.any())
    torch.testing.assert_close(shift.reshape(-1), torch.ones(2))


def test_moments_are_weighted() -> None:
    expected = torch.stack([x.T @ (WEIGHTS * x) for x in X])
    torch.testing.assert_close(second_moments(X, WEIGHTS), expected)
    torch.testing.assert_close(second_moments(X[:1], None), X[:1].mT @ X[:1])
