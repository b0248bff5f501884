"""Orderings: pivoting against SciPy, weights against brute force, a given order against lstsq."""

import numpy as np
import pytest
import scipy.linalg
import torch
from benchmarks.matrices import FAMILIES
from tests.linalg.matrices import MATRICES, N, consumer_weights, normal
from torch import Tensor

from interpress.errors import ArgumentError
from interpress.linalg import (
    FactorStream,
    RFactor,
    column_ordering,
    order_as_given,
    order_by_pivoting,
    order_by_weights,
)
from interpress.linalg.pivoting import are_independent
from interpress.linalg.stream import Route


def scipy_pivots(A: Tensor) -> tuple[np.ndarray, np.ndarray, int]:
    """Return R, the pivots, and the number of steps whose pivot is unique."""
    R, pivots = scipy.linalg.qr(A.numpy(), mode="r", pivoting=True)
    for step in range(min(R.shape)):
        norms = np.sort(np.linalg.norm(R[step:, step:], axis=0))[::-1]
        tied = len(norms) > 1 and norms[0] - norms[1] <= 1e-8 * norms[0]
        if tied or norms[0] <= 1e-11 * abs(R[0, 0]):
            return R, pivots, step
    return R, pivots, min(R.shape)


def test_pivots_and_diagonal_equal_those_of_scipy(A: Tensor) -> None:
    R, pivots, unique = scipy_pivots(A)
    ordering = column_ordering(A)
    assert ordering.order[:unique].tolist() == pivots[:unique].tolist()
    expected = np.abs(np.diag(R))[:unique]
    rounding = 1e-15 * expected[0] if unique else 0.0
    np.testing.assert_allclose(ordering.diagonal[:unique], expected, rtol=1e-9, atol=rounding)
    assert sorted(ordering.order.tolist()) == list(range(A.shape[1]))


def test_most_matrices_have_unique_pivots() -> None:
    unique = {name: scipy_pivots(A)[2] for name, A in MATRICES.items()}
    assert unique["random"] == unique["decaying"] == unique["kahan"] == N
    assert unique["duplicate_columns"] == N // 2
    assert unique["wide"] == N // 3
    assert unique["hilbert"] >= 9


def test_interpolation_matrix_equals_that_of_scipy(A: Tensor) -> None:
    R, pivots, unique = scipy_pivots(A)
    ordering = column_ordering(A)
    ratios = np.abs(np.diag(R)[:unique]) / max(abs(R[0, 0]), 1e-300)
    well_conditioned = unique if (ratios >= 1e-5).all() else int(np.argmax(ratios < 1e-5))
    for k in range(1, well_conditioned + 1):
        expected = np.zeros((k, A.shape[1]))
        expected[:, pivots] = np.hstack(
            [np.eye(k), scipy.linalg.solve_triangular(R[:k, :k], R[:k, k:])]
        )
        atol = 1e-12 * np.abs(expected).max() / ratios[k - 1] ** 2
        np.testing.assert_allclose(ordering.at_rank(k).T, expected, rtol=0, atol=atol)


def test_gram_and_root_give_the_same_ordering() -> None:
    A = FAMILIES["activations"](96, 1)
    root = order_by_pivoting(RFactor.from_root(A, len(A)))
    gram = order_by_pivoting(RFactor.from_gram(A.T @ A, len(A)))
    assert torch.equal(root.order, gram.order)
    torch.testing.assert_close(root.at_rank(48).T, gram.at_rank(48).T, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
def test_error_at_half_width_is_at_most_five_percent_above_scipy(name: str) -> None:
    A = FAMILIES[name](128, 1)
    n = A.shape[1]
    k = n // 2
    R, pivots = scipy.linalg.qr(A.numpy(), mode="r", pivoting=True)
    T = np.zeros((k, n))
    T[:, pivots] = np.hstack([np.eye(k), np.linalg.lstsq(R[:k, :k], R[:k, k:], rcond=None)[0]])
    scipy_error = A.numpy() - A.numpy()[:, pivots[:k]] @ T
    result = column_ordering(A).at_rank(k)
    error = (A - A[:, result.kept] @ result.T).numpy()
    rounding = 1e-12 * np.linalg.norm(A)
    for norm in (2, "fro"):
        assert np.linalg.norm(error, norm) <= 1.05 * np.linalg.norm(scipy_error, norm) + rounding


def test_independent_columns_form_a_basis() -> None:
    Z = normal(40, 5)
    Z = torch.cat([Z, Z[:, :2] @ normal(2, 3, 1)], dim=1)  # columns 5, 6, 7 depend on 0 and 1
    factor = RFactor.from_gram(Z.T @ Z, 40)
    assert are_independent(factor, torch.tensor([0, 2, 5])).all()
    three_of_rank_two = are_independent(factor, torch.tensor([5, 6, 7]))
    assert int(three_of_rank_two.sum()) == 2
    assert int(are_independent(factor, torch.arange(8)).sum()) == 5


def test_given_order_has_the_least_squares_errors() -> None:
    A = MATRICES["duplicate_columns"]
    order = torch.arange(N).roll(7)
    for factor in (RFactor.from_root(A, len(A)), RFactor.from_gram(A.T @ A, len(A))):
        ordering = order_as_given(factor, order)
        assert torch.equal(ordering.order, order)
        for k in (0, 1, 10, 30, 31, 45, N):
            result = ordering.at_rank(k)
            assert torch.equal(result.kept, order[:k])
            best = torch.linalg.lstsq(A[:, order[:k]], A, driver="gelsd").solution
            expected = float(torch.linalg.matrix_norm(A - A[:, order[:k]] @ best))
            true = float(torch.linalg.matrix_norm(A - A[:, result.kept] @ result.T))
            assert true == pytest.approx(expected, rel=1e-7, abs=1e-6)
            assert float(ordering.frobenius_tails[k]) == pytest.approx(expected, rel=1e-7, abs=1e-6)


@pytest.mark.parametrize("order", [[0, 1, 1], [0, 1], [1, 2, 3]])
def test_given_order_must_be_a_permutation(order: list[int]) -> None:
    factor = FactorStream(3).add(torch.randn(9, 3)).factor()
    with pytest.raises(ArgumentError, match="permutation of 3 columns; list each column once"):
        order_as_given(factor, torch.tensor(order))


@pytest.mark.parametrize("rows", [2, 6, 30])
def test_given_order_of_near_duplicates(rows: int) -> None:
    for seed in range(60):
        Z = normal(rows, 8, seed)
        Z[:, 1] = Z[:, 0] + 10.0 ** -(3 + seed % 9) * Z[:, 1]
        for factor in (RFactor.from_root(Z, rows), RFactor.from_gram(Z.T @ Z, rows)):
            ordering = order_as_given(factor, torch.arange(8))
            assert ordering.numerical_rank <= rows
            for k in range(9):
                result = ordering.at_rank(k)
                true = float(torch.linalg.matrix_norm(Z - Z[:, result.kept] @ result.T))
                rounding = (factor.floor * ordering.spectral_norm + ordering.unseen) * 3
                # the tails still include a kept column that counts as dependent
                allowed = rounding * (1 + result.T_norm) + 1e-11 * ordering.spectral_norm
                assert abs(true - float(ordering.frobenius_tails[k])) <= allowed
                assert abs(true - result.frobenius_error) <= allowed


def test_given_order_of_float64_data_keeps_full_precision() -> None:
    A = normal(30, 10) * torch.logspace(0, -12, 10, dtype=torch.float64)
    ordering = order_as_given(RFactor.from_root(A, 30), torch.arange(10))
    for k in (3, 8, 10):
        result = ordering.at_rank(k)
        true = float(torch.linalg.matrix_norm(A - A[:, result.kept] @ result.T))
        assert true == pytest.approx(result.frobenius_error, rel=1e-3, abs=1e-16 * float(A.norm()))
        assert true == pytest.approx(float(ordering.frobenius_tails[k]), rel=1e-3, abs=1e-15)


def brute_force(Z: Tensor, U: Tensor, steps: int) -> list[int]:
    """Return the greedy choice: try every next column and solve the least-squares problem anew."""
    kept: list[int] = []
    for _ in range(steps):
        errors = {}
        for j in set(range(Z.shape[1])) - set(kept):
            chosen = Z[:, [*kept, j]]
            T = torch.linalg.lstsq(chosen, Z).solution
            errors[j] = float(torch.linalg.matrix_norm((Z - chosen @ T) @ U))
        kept.append(min(errors, key=errors.__getitem__))
    return kept


@pytest.mark.parametrize("outputs", [3, 40])
def test_weighted_order_equals_brute_force(outputs: int) -> None:
    Z, U = FAMILIES["activations"](24, 2), consumer_weights(24, outputs)
    ordering = order_by_weights(RFactor.from_gram(Z.T @ Z, len(Z)), U @ U.T)
    steps = 12 if outputs == 40 else 6
    assert ordering.order[:steps].tolist() == brute_force(Z, U, steps)


def test_weighted_order_has_smaller_weighted_errors_than_pivoting() -> None:
    Z, U = FAMILIES["activations"](128, 0), consumer_weights(128, 10)
    H = U @ U.T
    factor = RFactor.from_gram(Z.T @ Z, len(Z))
    weighted = order_by_weights(factor, H).weighted_tails(H)
    pivoted = order_by_pivoting(factor).weighted_tails(H)
    assert bool((weighted[8:64] < pivoted[8:64]).all())


def test_weighted_order_does_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    Z, U = FAMILIES["activations"](150, 0), consumer_weights(150, 300)
    factor = RFactor.from_gram(Z.T @ Z, len(Z))
    blocked = order_by_weights(factor, U @ U.T)
    monkeypatch.setattr("interpress.linalg.cholesky._BLOCK", 150)
    whole = order_by_weights(factor, U @ U.T)
    assert torch.equal(blocked.order[:100], whole.order[:100])


def test_weighted_order_does_not_depend_on_the_scale_of_the_weights() -> None:
    Z, U = FAMILIES["activations"](40, 0), consumer_weights(40, 40)
    factor = RFactor.from_gram(Z.T @ Z, len(Z))
    orders = [order_by_weights(factor, c * U @ U.T).order for c in (1e-30, 1.0, 1e30)]
    assert torch.equal(orders[0], orders[1])
    assert torch.equal(orders[2], orders[1])


@pytest.mark.parametrize("scale", [1e-130, 1e-60, 1e60, 1e130])
def test_weighted_order_does_not_depend_on_the_scale_of_the_data(scale: float) -> None:
    Z, U = FAMILIES["activations"](40, 0), consumer_weights(40, 40)
    expected = order_by_weights(RFactor.from_root(Z, len(Z)), U @ U.T).order
    scaled = order_by_weights(RFactor.from_root(scale * Z, len(Z)), U @ U.T).order
    assert torch.equal(scaled[:30], expected[:30])


@pytest.mark.parametrize("route", ["gram", "tsqr"])
def test_weighted_order_keeps_small_channels_beside_near_duplicates(route: Route) -> None:
    """32 channels, copies of them that differ by 1e-6, and 32 small channels that matter."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    large = draw(2000, 32)
    Z = torch.cat([large, large + 1e-6 * draw(2000, 32), 1e-2 * draw(2000, 32)], 1).float()
    U = draw(96, 10)
    factor = FactorStream(96, route=route).add(Z).factor()
    ordering = order_by_weights(factor, U @ U.T)
    tails = ordering.weighted_tails(U @ U.T)
    pivoted = order_by_pivoting(factor).weighted_tails(U @ U.T)
    assert float(tails[64] / tails[0]) < 1e-6
    assert float(tails[64]) < 2 * float(pivoted[64])
    assert set(range(64, 96)) <= set(ordering.order[:64].tolist())


def test_weighted_order_of_pairs_whose_differences_matter_equals_brute_force() -> None:
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(60, 6, generator=generator, dtype=torch.float64)
    Z = torch.cat([a, a + 1e-4 * torch.randn(60, 6, generator=generator).double()], 1)
    U = torch.cat([torch.eye(6), -torch.eye(6)]).double()
    factor = RFactor.from_gram(Z.T @ Z, 60)
    tails = order_by_weights(factor, U @ U.T).weighted_tails(U @ U.T)
    chosen = brute_force(Z, U, 12)
    for k in range(1, 12):
        T = torch.linalg.lstsq(Z[:, chosen[:k]], Z).solution
        best = float(torch.linalg.matrix_norm((Z - Z[:, chosen[:k]] @ T) @ U))
        assert float(tails[k]) <= 1.001 * best + 1e-9


@pytest.mark.parametrize(
    ("H", "message"),
    [
        (torch.eye(3).fliplr() - torch.eye(3).fliplr().diag().diag(), "positive semidefinite"),
        (-torch.eye(3), "H is not symmetric positive semidefinite"),
        (torch.eye(3) + torch.eye(3).roll(1, 0), "pass U @ U.T"),
        (torch.zeros(3, 3), "H is zero: no weight reads these channels"),
        (torch.eye(4), r"H has shape \(4, 4\); it must be \(3, 3\)"),
        (torch.eye(3).long(), "H is not a float tensor"),
        (torch.full((3, 3), float("nan")), "H holds NaN or Inf"),
    ],
)
def test_bad_weights(H: Tensor, message: str) -> None:
    factor = FactorStream(3).add(torch.randn(9, 3)).factor()
    with pytest.raises(ArgumentError, match=message):
        order_by_weights(factor, H)
