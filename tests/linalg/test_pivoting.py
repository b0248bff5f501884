"""Column pivoting against SciPy: pivots, T, and errors that are what they claim."""

import numpy as np
import pytest
import scipy.linalg
import torch
from benchmarks.matrices import FAMILIES
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
from interpress.linalg.cholesky import _eliminate, _lapack
from interpress.linalg.norms import spectral_norm, spectral_norm_at_most

N = 60
SPECIAL = {
    "single_column": torch.tensor([[3.0], [4.0]], dtype=torch.float64),
    "single_row": torch.arange(1.0, 7.0, dtype=torch.float64)[None, :],
    "single_entry": torch.tensor([[-2.0]], dtype=torch.float64),
    "rank_zero": torch.zeros(9, 5, dtype=torch.float64),
    "identical_columns": torch.ones(8, 6, dtype=torch.float64),
}
MATRICES = {name: family(N, 0) for name, family in FAMILIES.items()} | SPECIAL


@pytest.fixture(params=MATRICES)
def A(request: pytest.FixtureRequest) -> Tensor:
    return MATRICES[request.param]


def scipy_pivots(A: Tensor) -> tuple[np.ndarray, np.ndarray, int]:
    """R, pivots, and for how many steps the choice of pivot is beyond doubt."""
    R, pivots = scipy.linalg.qr(A.numpy(), mode="r", pivoting=True)
    for step in range(min(R.shape)):
        norms = np.sort(np.linalg.norm(R[step:, step:], axis=0))[::-1]
        tied = len(norms) > 1 and norms[0] - norms[1] <= 1e-8 * norms[0]
        if tied or norms[0] <= 1e-11 * abs(R[0, 0]):
            return R, pivots, step
    return R, pivots, min(R.shape)


def test_same_pivots_and_diagonal_as_scipy(A: Tensor) -> None:
    R, pivots, unique = scipy_pivots(A)
    ordering = column_ordering(A)
    assert ordering.order[:unique].tolist() == pivots[:unique].tolist()
    expected = np.abs(np.diag(R))[:unique]
    rounding = 1e-15 * expected[0] if unique else 0.0
    np.testing.assert_allclose(ordering.diagonal[:unique], expected, rtol=1e-9, atol=rounding)
    assert sorted(ordering.order.tolist()) == list(range(A.shape[1]))


def test_the_families_do_exercise_the_pivots() -> None:
    unique = {name: scipy_pivots(A)[2] for name, A in MATRICES.items()}
    assert unique["random"] == unique["decaying"] == unique["kahan"] == N
    assert unique["duplicate_columns"] == N // 2
    assert unique["wide"] == N // 3
    assert unique["hilbert"] >= 9


def test_same_interpolation_matrix_as_scipy(A: Tensor) -> None:
    R, pivots, unique = scipy_pivots(A)
    ordering = column_ordering(A)
    for k in range(1, unique + 1):
        ratio = abs(R[k - 1, k - 1] / R[0, 0])
        if ratio < 1e-5:
            break
        expected = np.zeros((k, A.shape[1]))
        expected[:, pivots] = np.hstack(
            [np.eye(k), scipy.linalg.solve_triangular(R[:k, :k], R[:k, k:])]
        )
        found = ordering.at_rank(k)
        size = np.abs(expected).max()
        np.testing.assert_allclose(found.T, expected, rtol=0, atol=1e-12 * size / ratio**2)


def test_reported_tails_are_the_true_ones(A: Tensor) -> None:
    ordering = column_ordering(A)
    norm = float(torch.linalg.matrix_norm(A))
    for k in range(A.shape[1] + 1):
        found = ordering.at_rank(k)
        error = A - A[:, found.kept] @ found.T
        true = float(torch.linalg.matrix_norm(error))
        assert true == pytest.approx(float(ordering.frobenius_tails[k]), rel=1e-9, abs=1e-13 * norm)
        assert found.frobenius_error == pytest.approx(true, rel=1e-9, abs=1e-13 * norm)
        spectral = float(torch.linalg.matrix_norm(error, 2))
        assert found.spectral_error == pytest.approx(spectral, rel=1e-9, abs=1e-13 * norm)
        assert ordering.spectral_tail(k) == found.spectral_error
        assert torch.equal(found.T[:, found.kept], torch.eye(k, dtype=torch.float64))
        bound = ordering.svd_bound(k)
        assert bound.spectral <= spectral + 1e-13 * norm
        assert bound.frobenius <= true + 1e-13 * norm


def test_singular_values_are_those_of_the_matrix(A: Tensor) -> None:
    ordering = column_ordering(A)
    expected = torch.linalg.svdvals(A)
    found = ordering.singular_values
    atol = 1e-12 * float(expected[0])
    common = min(len(found), len(expected))
    torch.testing.assert_close(found[:common], expected[:common], rtol=1e-9, atol=atol)
    assert ordering.numerical_rank <= common
    assert bool((found[common:] <= atol).all())
    assert ordering.spectral_norm == pytest.approx(float(torch.linalg.matrix_norm(A, 2)), rel=1e-12)


@pytest.mark.parametrize("eps", [0.5, 1e-1, 1e-3, 1e-6, 1e-10, 0.0])
def test_certified_accuracy_holds_and_is_the_smallest(A: Tensor, eps: float) -> None:
    ordering = column_ordering(A)
    found = ordering.for_accuracy(eps)
    norm = float(torch.linalg.matrix_norm(A, 2))
    error = float(torch.linalg.matrix_norm(A - A[:, found.kept] @ found.T, 2))
    assert error <= eps * norm
    if found.k > 0 and eps > 0:
        assert ordering.spectral_tail(found.k - 1) > (eps - 1.01 * ordering.floor) * norm


def test_the_proxy_alone_can_be_too_hopeful_and_the_certificate_is_not() -> None:
    ordering = column_ordering(MATRICES["decaying"])
    eps = float(ordering.proxy_errors[11])
    hopeful = ordering.for_accuracy(eps, certified=False)
    assert hopeful.k == 11
    assert hopeful.spectral_error > 1.4 * eps * ordering.spectral_norm
    certified = ordering.for_accuracy(eps)
    assert certified.k > 11
    assert certified.spectral_error <= eps * ordering.spectral_norm


def test_nested(A: Tensor) -> None:
    ordering = column_ordering(A)
    largest = ordering.kept(A.shape[1]).tolist()
    assert all(ordering.kept(k).tolist() == largest[:k] for k in range(A.shape[1]))
    assert bool((ordering.frobenius_tails.diff() <= 0).all())
    assert bool((ordering.proxy_errors.diff() <= 0).all())


def test_dependent_columns_never_blow_up_T() -> None:
    for name in ("duplicate_columns", "zero_columns", "wide", "identical_columns"):
        A = MATRICES[name]
        ordering = column_ordering(A)
        assert ordering.numerical_rank == int(torch.linalg.matrix_rank(A)), name
        for k in range(A.shape[1] + 1):
            assert ordering.at_rank(k).largest_entry < 10, (name, k)


def test_blocked_torch_and_lapack_agree() -> None:
    """The GPU's algorithm, run on the CPU; more columns than one block."""
    for name in ("random", "decaying", "activations", "duplicate_columns", "zero_columns"):
        A = FAMILIES[name](150, 3)
        G = A.T @ A
        smallest = 1e-13 * float(G.diagonal().max())
        ours, theirs = _eliminate(G, smallest), _lapack(G, smallest)
        assert ours.count == theirs.count, name
        certain = int((theirs.R.diagonal() > 1e-5 * theirs.R[0, 0]).sum())
        assert torch.equal(ours.order[:certain], theirs.order[:certain]), name
        torch.testing.assert_close(
            ours.R[:certain, :certain], theirs.R[:certain, :certain], rtol=1e-6, atol=1e-10
        )


def test_gram_and_root_give_the_same_ordering() -> None:
    A = FAMILIES["activations"](96, 1)
    root = order_by_pivoting(RFactor.from_root(A, len(A)))
    gram = order_by_pivoting(RFactor.from_gram(A.T @ A, len(A)))
    assert torch.equal(root.order, gram.order)
    torch.testing.assert_close(root.at_rank(48).T, gram.at_rank(48).T, rtol=1e-6, atol=1e-9)


def test_as_given_reports_the_least_squares_error_of_that_order() -> None:
    A = MATRICES["duplicate_columns"]
    order = torch.arange(N).roll(7)
    for factor in (RFactor.from_root(A, len(A)), RFactor.from_gram(A.T @ A, len(A))):
        ordering = order_as_given(factor, order)
        assert torch.equal(ordering.order, order)
        for k in (0, 1, 10, 30, 31, 45, N):
            found = ordering.at_rank(k)
            assert torch.equal(found.kept, order[:k])
            best = torch.linalg.lstsq(A[:, order[:k]], A, driver="gelsd").solution
            expected = float(torch.linalg.matrix_norm(A - A[:, order[:k]] @ best))
            true = float(torch.linalg.matrix_norm(A - A[:, found.kept] @ found.T))
            assert true == pytest.approx(expected, rel=1e-7, abs=1e-6)
            assert float(ordering.frobenius_tails[k]) == pytest.approx(expected, rel=1e-7, abs=1e-6)


@pytest.mark.parametrize("order", [[0, 1, 1], [0, 1], [1, 2, 3]])
def test_as_given_refuses_what_is_no_permutation(order: list[int]) -> None:
    factor = FactorStream(3).add(torch.randn(9, 3)).factor()
    with pytest.raises(ArgumentError, match="permutation of 3 columns"):
        order_as_given(factor, torch.tensor(order))


@pytest.mark.parametrize("k", [-1, 61, 1.5, True, None])
def test_bad_k_names_the_value_and_the_range(k: object) -> None:
    with pytest.raises(ArgumentError, match=rf"k={k!r} of 60 columns; ask for a k from 0 to 60"):
        column_ordering(MATRICES["random"]).at_rank(k)  # type: ignore[arg-type]


@pytest.mark.parametrize("eps", [-1e-3, float("nan"), float("inf"), "small", None])
def test_bad_eps_names_the_value_and_the_remedy(eps: object) -> None:
    with pytest.raises(ArgumentError, match=rf"eps={eps!r}; give a relative error of at least 0"):
        column_ordering(MATRICES["random"]).for_accuracy(eps)  # type: ignore[arg-type]


def test_spectral_norm_test_is_sharp() -> None:
    matrix = MATRICES["decaying"]
    norm = spectral_norm(matrix)
    assert norm == pytest.approx(float(torch.linalg.matrix_norm(matrix, 2)), rel=1e-13)
    assert spectral_norm_at_most(matrix, norm * (1 + 1e-9))
    assert not spectral_norm_at_most(matrix, norm * (1 - 1e-9))
    assert spectral_norm(matrix[:0]) == 0.0


def test_a_basis_singular_to_working_precision_still_gives_a_moderate_T() -> None:
    """Kahan, 256 columns: the triangular solve alone gives entries of 1e16 and a useless error."""
    A, k = FAMILIES["kahan"](256, 0), 128
    found = column_ordering(A).at_rank(k)
    assert found.largest_entry < 10
    error = A - A[:, found.kept] @ found.T
    assert float(torch.linalg.matrix_norm(error)) == pytest.approx(found.frobenius_error, rel=1e-6)
    best = torch.linalg.lstsq(A[:, found.kept], A, driver="gelsd").solution
    optimal = float(torch.linalg.matrix_norm(A - A[:, found.kept] @ best))
    assert found.frobenius_error <= 1.001 * optimal


@pytest.mark.parametrize("name", FAMILIES)
def test_error_at_half_width_is_at_most_five_percent_above_scipy(name: str) -> None:
    from benchmarks.linalg import judge, scipy_qr_selection

    A = FAMILIES[name](128, 1)
    found = column_ordering(A).at_rank(64)
    ours = judge(A, 64, found.kept, found.T)
    theirs = judge(A, 64, *scipy_qr_selection(A, 64))
    for norm in ("spectral", "frobenius"):
        if ours[norm] is None:
            assert ours["relative"] < 1e-12
        else:
            assert 1 - 1e-9 <= ours[norm] <= 1.05 * theirs[norm]


def by_identity_weights(factor: RFactor) -> ColumnOrdering:
    return order_by_weights(factor, torch.eye(factor.n, dtype=torch.float64))


def as_numbered(factor: RFactor) -> ColumnOrdering:
    return order_as_given(factor, torch.arange(factor.n))


@pytest.mark.parametrize("order", [order_by_pivoting, by_identity_weights, as_numbered])
@pytest.mark.parametrize("shape", [(300, 300), (50, 400)])
@pytest.mark.parametrize(
    ("route", "dtype"), [("gram", None), ("tsqr", None), ("tsqr", torch.float32)]
)
def test_many_columns_just_below_the_floor_are_not_promised_away(
    order, shape, route, dtype
) -> None:
    """Each is rounding, together they are not: some loud channels, dead ones, many quiet ones."""
    rows, n = shape
    loud = rows - 1 if rows < n else 1
    stream = FactorStream(n, route=route, dtype=dtype)
    floor = FactorStream(n, route=route, dtype=dtype).add(torch.ones(1, n)).factor().floor
    Z = torch.zeros(rows, n, dtype=torch.float64)
    Z[:loud, :loud] = torch.eye(loud)
    Z[loud, loud + 10 :] = 0.9 * floor
    ordering = order(stream.add(Z).factor())
    for eps in (2 * floor, 5 * floor, 15 * floor, 100 * floor):
        found = ordering.for_accuracy(eps)
        error = Z - Z[:, found.kept] @ found.T
        assert float(torch.linalg.matrix_norm(error, 2)) <= eps


@pytest.mark.parametrize("rows", [2, 6, 30])
def test_as_given_on_near_duplicates_of_any_shape(rows: int) -> None:
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        Z = torch.randn(rows, 8, generator=generator, dtype=torch.float64)
        Z[:, 1] = Z[:, 0] + 10.0 ** -(3 + seed % 9) * Z[:, 1]
        for factor in (RFactor.from_root(Z, rows), RFactor.from_gram(Z.T @ Z, rows)):
            ordering = order_as_given(factor, torch.arange(8))
            assert ordering.numerical_rank <= rows
            for k in range(9):
                found = ordering.at_rank(k)
                true = float(torch.linalg.matrix_norm(Z - Z[:, found.kept] @ found.T))
                rounding = (factor.floor * ordering.spectral_norm + ordering.unseen) * 3
                # a kept column that counted as dependent still stands in the tails
                allowed = rounding * (1 + found.T_norm) + 1e-11 * ordering.spectral_norm
                assert abs(true - float(ordering.frobenius_tails[k])) <= allowed
                assert abs(true - found.frobenius_error) <= allowed


def test_float64_orders_as_given_keep_their_digits() -> None:
    torch.manual_seed(0)
    A = torch.randn(30, 10, dtype=torch.float64) * torch.logspace(0, -12, 10, dtype=torch.float64)
    ordering = order_as_given(RFactor.from_root(A, 30), torch.arange(10))
    for k in (3, 8, 10):
        found = ordering.at_rank(k)
        true = float(torch.linalg.matrix_norm(A - A[:, found.kept] @ found.T))
        assert true == pytest.approx(found.frobenius_error, rel=1e-3, abs=1e-16 * float(A.norm()))
        assert true == pytest.approx(float(ordering.frobenius_tails[k]), rel=1e-3, abs=1e-15)


def test_the_proxy_of_an_order_that_does_not_decrease() -> None:
    A = torch.diag(torch.tensor([1.0, 0.001, 5.0, 0.001], dtype=torch.float64))
    ordering = order_as_given(RFactor.from_root(A, 4), torch.arange(4))
    assert ordering.for_accuracy(0.01, certified=False).k == 3
    assert float(ordering.proxy_errors.max()) == 1


def test_answers_do_not_share_memory_with_the_ordering() -> None:
    order = torch.arange(60)
    ordering = order_as_given(FactorStream(60).add(torch.randn(99, 60)).factor(), order)
    ordering.kept(3).zero_()
    order.zero_()
    assert torch.equal(ordering.kept(3), torch.arange(3))


def test_everything_may_be_dropped_at_eps_one(A: Tensor) -> None:
    assert column_ordering(A).for_accuracy(1.0).k == 0


def test_gradients_stay_out() -> None:
    Z = torch.randn(30, 6, dtype=torch.float64, requires_grad=True)
    for factor in (RFactor.from_root(Z, 30), RFactor.from_gram(Z.T @ Z, 30)):
        assert not order_by_pivoting(factor).at_rank(3).T.requires_grad
        assert not factor.R.requires_grad


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RFactor.from_gram(torch.eye(3), 3), "must be square and accumulated in float64"),
        (lambda: RFactor.from_gram(torch.ones(2, 3).double(), 3), r"shape \(2, 3\)"),
        (
            lambda: RFactor.from_root(torch.ones(3).double(), 3),
            r"shape \(3,\); it must be a matrix",
        ),
        (lambda: RFactor.from_root(torch.ones(3, 3).long(), 3), "dtype torch.int64"),
    ],
)
def test_bad_factors(call, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()
