"""`RFactor` and the products that it is computed from."""

import pytest
import torch
from tests.linalg.matrices import normal, relative_difference

from interpress.errors import ArgumentError
from interpress.linalg import RFactor
from interpress.linalg.factor import (
    add_gram,
    gram,
    mirror,
    safe_cholesky,
    triangle,
)


def test_both_forms_hold_the_inner_products() -> None:
    Z = normal(50, 8)
    for factor in (RFactor.from_gram(Z.T @ Z, 50), RFactor.from_root(Z, 50)):
        assert (factor.n, factor.rows) == (8, 50)
        assert relative_difference(factor.G, Z.T @ Z) < 1e-14
        assert relative_difference(factor.R, triangle(Z)) < 1e-12
        assert torch.equal(factor.R, factor.R.triu())


def test_triangle_is_the_factor_with_a_non_negative_diagonal() -> None:
    Z = normal(20, 5)
    R = triangle(Z)
    assert bool((R.diagonal() >= 0).all())
    assert relative_difference(R.T @ R, Z.T @ Z) < 1e-14


@pytest.mark.parametrize("n", [5, 300])
def test_gram_by_panels_equals_the_product(n: int) -> None:
    Z, more = normal(40, n), normal(30, n, 1)
    total = gram(Z)
    assert relative_difference(total, Z.T @ Z) < 1e-14
    add_gram(total, more)
    assert relative_difference(mirror(total), Z.T @ Z + more.T @ more) < 1e-14


def test_safe_cholesky_refuses_nearly_singular_matrices() -> None:
    Z = normal(40, 6)
    lower = safe_cholesky(Z.T @ Z)
    assert lower is not None
    assert relative_difference(lower @ lower.T, Z.T @ Z) < 1e-14
    Z[:, 5] = Z[:, 0] + 1e-6 * Z[:, 5]
    assert safe_cholesky(Z.T @ Z) is None
    assert safe_cholesky(torch.zeros(0, 0)) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RFactor(rows=3, floor=0.0), "exactly one of gram= and root="),
        (lambda: RFactor.from_gram(torch.eye(3), 3), "a square matrix accumulated in float64"),
        (lambda: RFactor.from_gram(torch.ones(2, 3).double(), 3), r"shape \(2, 3\)"),
        (lambda: RFactor.from_root(torch.ones(3).double(), 3), r"shape \(3,\); pass a matrix"),
        (lambda: RFactor.from_root(torch.ones(3, 3).long(), 3), "dtype torch.int64"),
    ],
)
def test_bad_factors(call, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()
