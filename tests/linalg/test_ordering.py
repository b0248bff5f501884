"""`ColumnOrdering`: its errors equal the errors of the reconstruction, and certificates hold."""

import pytest
import torch
from benchmarks.matrices import FAMILIES
from tests.linalg.matrices import MATRICES, consumer_weights
from torch import Tensor

from interpress.errors import ArgumentError
from interpress.linalg import (
    ColumnOrdering,
    FactorStream,
    RFactor,
    column_ordering,
    order_as_given,
    order_by_pivoting,
    order_by_weights,
)
from interpress.linalg.ordering import suffix_sums


def test_reported_errors_are_those_of_the_reconstruction(A: Tensor) -> None:
    ordering = column_ordering(A)
    norm = float(torch.linalg.matrix_norm(A))
    for k in range(A.shape[1] + 1):
        result = ordering.at_rank(k)
        error = A - A[:, result.kept] @ result.T
        true = float(torch.linalg.matrix_norm(error))
        assert true == pytest.approx(float(ordering.frobenius_tails[k]), rel=1e-9, abs=1e-13 * norm)
        assert result.frobenius_error == pytest.approx(true, rel=1e-9, abs=1e-13 * norm)
        spectral = float(torch.linalg.matrix_norm(error, 2))
        assert result.spectral_error == pytest.approx(spectral, rel=1e-9, abs=1e-13 * norm)
        assert ordering.spectral_tail(k) == result.spectral_error
        assert torch.equal(result.T[:, result.kept], torch.eye(k, dtype=torch.float64))
        bound = ordering.svd_bound(k)
        assert bound.spectral <= spectral + 1e-13 * norm
        assert bound.frobenius <= true + 1e-13 * norm


@pytest.mark.parametrize("source", ["gram", "root"])
@pytest.mark.parametrize("name", FAMILIES)
def test_weighted_tails_are_those_of_the_reconstruction(name: str, source: str) -> None:
    Z, U = FAMILIES[name](70, 0), consumer_weights(70, 20)
    factor = RFactor.from_root(Z, len(Z))
    if source == "gram":
        factor = RFactor.from_gram(Z.T @ Z, len(Z))
    ordering = order_by_weights(factor, U @ U.T)
    tails = ordering.weighted_tails(U @ U.T)
    assert sorted(ordering.order.tolist()) == list(range(70))
    size = ordering.spectral_norm * float(torch.linalg.matrix_norm(U))
    for k in (0, 1, 10, 35, 69, 70):
        result = ordering.at_rank(k)
        true = float(torch.linalg.matrix_norm((Z - Z[:, result.kept] @ result.T) @ U))
        rounding = factor.floor * (1 + result.T_norm)
        assert rounding < 0.1
        if (name, source, k) == ("kahan", "gram", 69):
            # The exact T has entries of 1e8, which a Gram matrix cannot resolve. The returned T
            # depends on the rounding of the processor, and is small.
            assert result.largest_entry < 1e3
            continue
        assert true == pytest.approx(float(tails[k]), rel=1e-6, abs=rounding * size)


@pytest.mark.parametrize("source", ["gram", "root"])
def test_weighted_tails_of_near_duplicates(source: str) -> None:
    """A column barely above the rounding error of a Gram matrix must not become a basis column."""
    for seed in range(150):
        generator = torch.Generator().manual_seed(seed)
        Z = torch.randn(3, 5, generator=generator, dtype=torch.float64)
        distance = 10.0 ** -(5 + 3 * float(torch.rand(1, generator=generator)))
        Z[:, 1] = Z[:, 0] + distance * torch.randn(3, generator=generator, dtype=torch.float64)
        U = torch.randn(5, 3, generator=generator, dtype=torch.float64)
        factor = RFactor.from_gram(Z.T @ Z, 3) if source == "gram" else RFactor.from_root(Z, 3)
        ordering = order_by_weights(factor, U @ U.T)
        tails = ordering.weighted_tails(U @ U.T)
        size = float(torch.linalg.matrix_norm(Z @ U))
        for k in range(6):
            result = ordering.at_rank(k)
            true = float(torch.linalg.matrix_norm((Z - Z[:, result.kept] @ result.T) @ U))
            assert true == pytest.approx(float(tails[k]), rel=1e-6, abs=1e-4 * size)
        assert float(tails[4]) <= 1e-4 * size  # the rank is three, and one column is a duplicate


def test_singular_values_are_those_of_the_matrix(A: Tensor) -> None:
    ordering = column_ordering(A)
    expected = torch.linalg.svdvals(A)
    values = ordering.singular_values
    atol = 1e-12 * float(expected[0])
    common = min(len(values), len(expected))
    torch.testing.assert_close(values[:common], expected[:common], rtol=1e-9, atol=atol)
    assert ordering.numerical_rank <= common
    assert bool((values[common:] <= atol).all())
    assert ordering.spectral_norm == pytest.approx(float(torch.linalg.matrix_norm(A, 2)), rel=1e-12)


@pytest.mark.parametrize("eps", [0.5, 1e-1, 1e-3, 1e-6, 1e-10, 0.0])
def test_certified_accuracy_holds_with_the_smallest_k(A: Tensor, eps: float) -> None:
    ordering = column_ordering(A)
    result = ordering.for_accuracy(eps)
    norm = float(torch.linalg.matrix_norm(A, 2))
    error = float(torch.linalg.matrix_norm(A - A[:, result.kept] @ result.T, 2))
    assert error <= eps * norm
    assert ordering.is_certified(result.k, eps)
    if result.k > 0 and eps > 0:
        assert ordering.spectral_tail(result.k - 1) > (eps - 1.01 * ordering.floor) * norm


def test_the_proxy_can_miss_the_accuracy_and_the_certificate_cannot() -> None:
    ordering = column_ordering(MATRICES["decaying"])
    eps = float(ordering.proxy_errors[11])
    estimated = ordering.for_accuracy(eps, certified=False)
    assert estimated.k == 11
    assert estimated.spectral_error > 1.4 * eps * ordering.spectral_norm
    certified = ordering.for_accuracy(eps)
    assert certified.k > 11
    assert certified.spectral_error <= eps * ordering.spectral_norm


def test_the_proxy_of_an_order_that_does_not_decrease() -> None:
    A = torch.diag(torch.tensor([1.0, 0.001, 5.0, 0.001], dtype=torch.float64))
    ordering = order_as_given(RFactor.from_root(A, 4), torch.arange(4))
    assert not ordering.diagonal_decreases
    assert ordering.for_accuracy(0.01, certified=False).k == 3
    assert float(ordering.proxy_errors.max()) == 1


def by_identity_weights(factor: RFactor) -> ColumnOrdering:
    return order_by_weights(factor, torch.eye(factor.n, dtype=torch.float64))


def as_numbered(factor: RFactor) -> ColumnOrdering:
    return order_as_given(factor, torch.arange(factor.n))


@pytest.mark.parametrize("order", [order_by_pivoting, by_identity_weights, as_numbered])
@pytest.mark.parametrize("shape", [(300, 300), (50, 400)])
@pytest.mark.parametrize(
    ("route", "dtype"), [("gram", None), ("tsqr", None), ("tsqr", torch.float32)]
)
def test_the_certificate_includes_many_columns_just_below_the_floor(
    order, shape, route, dtype
) -> None:
    """Each such column is a rounding error, but together they are not."""
    rows, n = shape
    large = rows - 1 if rows < n else 1
    stream = FactorStream(n, route=route, dtype=dtype)
    floor = FactorStream(n, route=route, dtype=dtype).add(torch.ones(1, n)).factor().floor
    Z = torch.zeros(rows, n, dtype=torch.float64)
    Z[:large, :large] = torch.eye(large)
    Z[large, large + 10 :] = 0.9 * floor
    ordering = order(stream.add(Z).factor())
    for eps in (2 * floor, 5 * floor, 15 * floor, 100 * floor):
        result = ordering.for_accuracy(eps)
        error = Z - Z[:, result.kept] @ result.T
        assert float(torch.linalg.matrix_norm(error, 2)) <= eps


def test_no_column_is_needed_for_an_error_of_one(A: Tensor) -> None:
    assert column_ordering(A).for_accuracy(1.0).k == 0


def test_selections_are_nested_and_errors_decrease(A: Tensor) -> None:
    ordering = column_ordering(A)
    largest = ordering.kept(A.shape[1]).tolist()
    assert all(ordering.kept(k).tolist() == largest[:k] for k in range(A.shape[1]))
    assert bool((ordering.frobenius_tails.diff() <= 0).all())
    assert bool((ordering.proxy_errors.diff() <= 0).all())


@pytest.mark.parametrize("name", ["duplicate_columns", "zero_columns", "wide", "identical_columns"])
def test_dependent_columns_keep_T_small(name: str) -> None:
    A = MATRICES[name]
    ordering = column_ordering(A)
    assert ordering.numerical_rank == int(torch.linalg.matrix_rank(A))
    assert max(ordering.at_rank(k).largest_entry for k in range(A.shape[1] + 1)) < 10


def test_a_basis_singular_to_working_precision_gives_a_moderate_T() -> None:
    """Kahan, 256 columns: the triangular solve alone gives entries of 1e16 and a useless error."""
    A, k = FAMILIES["kahan"](256, 0), 128
    result = column_ordering(A).at_rank(k)
    assert result.largest_entry < 10
    error = A - A[:, result.kept] @ result.T
    assert float(torch.linalg.matrix_norm(error)) == pytest.approx(result.frobenius_error, rel=1e-6)
    best = torch.linalg.lstsq(A[:, result.kept], A, driver="gelsd").solution
    optimal = float(torch.linalg.matrix_norm(A - A[:, result.kept] @ best))
    assert result.frobenius_error <= 1.001 * optimal


def test_results_do_not_share_memory_with_the_ordering() -> None:
    order = torch.arange(60)
    ordering = order_as_given(FactorStream(60).add(torch.randn(99, 60)).factor(), order)
    ordering.kept(3).zero_()
    order.zero_()
    assert torch.equal(ordering.kept(3), torch.arange(3))


def test_gradients_are_detached() -> None:
    Z = torch.randn(30, 6, dtype=torch.float64, requires_grad=True)
    for factor in (RFactor.from_root(Z, 30), RFactor.from_gram(Z.T @ Z, 30)):
        assert not order_by_pivoting(factor).at_rank(3).T.requires_grad
        assert not factor.R.requires_grad
    layer = torch.nn.Linear(6, 10).double()
    H = layer.weight.T @ layer.weight
    ordering = order_by_weights(FactorStream(6).add(Z).factor(), H)
    assert not ordering.weighted_tails(H).requires_grad
    assert not ordering.at_rank(3).T.requires_grad


@pytest.mark.parametrize("k", [-1, 61, 1.5, True, None])
def test_bad_k_names_the_value_and_the_range(k: object) -> None:
    with pytest.raises(ArgumentError, match=rf"k={k!r} for 60 columns; give a k from 0 to 60"):
        column_ordering(MATRICES["random"]).at_rank(k)  # type: ignore[arg-type]


@pytest.mark.parametrize("eps", [-1e-3, float("nan"), float("inf"), "small", None])
def test_bad_eps_names_the_value_and_the_remedy(eps: object) -> None:
    with pytest.raises(ArgumentError, match=rf"eps={eps!r}; give a relative error of at least 0"):
        column_ordering(MATRICES["random"]).for_accuracy(eps)  # type: ignore[arg-type]


def test_suffix_sums() -> None:
    assert suffix_sums(torch.tensor([1.0, 2.0, 4.0])).tolist() == [7.0, 6.0, 4.0, 0.0]


def test_repr_names_the_class() -> None:
    assert repr(column_ordering(torch.eye(3))) == "ColumnOrdering(n=3, numerical_rank=3)"
