"""The quick interpolation for one k: errors, nesting, precision, and what it leaves to others."""

import numpy as np
import pytest
import scipy.linalg
import torch
from benchmarks.matrices import FAMILIES
from tests.linalg.matrices import normal
from torch import Tensor

import interpress
from interpress.linalg import column_ordering
from interpress.linalg.one_rank import interpolation_at_rank

N = 256
QUICK = ["random", "low_rank_plus_noise", "decaying", "activations", "zero_columns"]


def pivoted_qr_errors(A: Tensor, k: int) -> tuple[float, float]:
    """Return the spectral and the Frobenius error of QR with column pivoting."""
    R = scipy.linalg.qr(A.double().numpy(), mode="r", pivoting=True)[0]
    return float(np.linalg.norm(R[k:, k:], 2)), float(np.linalg.norm(R[k:, k:]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [N // 4, N // 2])
@pytest.mark.parametrize("name", QUICK)
def test_errors_are_at_most_five_percent_above_pivoted_qr(
    name: str, k: int, dtype: torch.dtype
) -> None:
    A = FAMILIES[name](N, 0).to(dtype)
    result = interpolation_at_rank(A, k)
    assert result is not None
    error = A.double() - A.double()[:, result.kept] @ result.T.double()
    spectral, frobenius = pivoted_qr_errors(A, k)
    assert float(torch.linalg.matrix_norm(error, 2)) <= 1.05 * spectral
    assert float(error.norm()) <= 1.05 * frobenius
    assert result.frobenius_error == pytest.approx(float(error.norm()), rel=1e-9)
    measured = float(torch.linalg.matrix_norm(error, 2))
    assert result.spectral_error == pytest.approx(measured, rel=1e-9)
    assert torch.equal(result.T[:, result.kept], torch.eye(k, dtype=dtype))
    assert result.T.is_contiguous()


@pytest.mark.parametrize("name", QUICK)
def test_float64_gives_the_columns_and_T_of_the_full_ordering(name: str) -> None:
    A = FAMILIES[name](N, 1)
    result, expected = interpolation_at_rank(A, 100), column_ordering(A).at_rank(100)
    assert result is not None
    assert torch.equal(result.kept, expected.kept)
    torch.testing.assert_close(result.T, expected.T, rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", QUICK)
def test_selections_are_nested_and_repeat(name: str, dtype: torch.dtype) -> None:
    A = FAMILIES[name](N, 0).to(dtype)
    results = [interpolation_at_rank(A, k) for k in (30, 64, 100, 100)]
    kept = [result.kept for result in results if result is not None]
    assert len(kept) == 4
    assert torch.equal(kept[0], kept[3][:30])
    assert torch.equal(kept[1], kept[3][:64])
    assert torch.equal(kept[2], kept[3])


def test_a_second_gram_matrix_resolves_a_small_residual() -> None:
    """64 large columns and 192 that add a part of 1e-7 to them: too small for one Gram matrix."""
    large = normal(2 * N, 64)
    A = torch.cat([large, large @ normal(64, 192, 1) / 8 + 1e-7 * normal(2 * N, 192, 2)], dim=1)
    result = interpolation_at_rank(A, 128)
    assert result is not None
    error = A - A[:, result.kept] @ result.T
    assert float(error.norm()) <= 1.01 * pivoted_qr_errors(A, 128)[1]


@pytest.mark.parametrize("noise", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("k", [60, 64, 100, 200])
def test_float32_noise_is_resolved_around_and_behind_the_rank(k: int, noise: float) -> None:
    A = normal(2 * N, 64) @ normal(64, N, 1) / 8 + noise * normal(2 * N, N, 2)
    result = interpolation_at_rank(A.float(), k)
    assert result is not None
    spectral, frobenius = pivoted_qr_errors(A.float(), k)
    assert result.spectral_error <= 1.1 * spectral
    assert result.frobenius_error <= 1.02 * frobenius


def test_residuals_near_the_rounding_errors_of_the_projection_are_not_used() -> None:
    """Singular values that fall by eight decades: the second Gram matrix cannot resolve float32."""
    left, right = torch.linalg.qr(normal(2 * N, N)).Q, torch.linalg.qr(normal(N, N, 1)).Q
    A = (left * torch.logspace(0, -8, N, dtype=torch.float64) @ right).float()
    for k in range(40, 240, 20):
        result = interpress.interpolative_decomposition(A, k=k)
        assert result.frobenius_error <= 1.02 * pivoted_qr_errors(A, k)[1]
    assert interpolation_at_rank(A, 60) is not None
    assert interpolation_at_rank(A, 128) is None


@pytest.mark.parametrize("n", [256, 384, 512])
def test_dependent_and_zero_columns_behind_k_are_interpolated(n: int) -> None:
    """Row lengths of powers of two get columns of zeros, which must not appear in the result."""
    A = normal(n, n)
    A[:, 1::2] = A[:, ::2] * 0.5
    A[:, 5] = 0
    result = interpolation_at_rank(A, n // 2 - 8)
    assert result is not None
    assert result.T.shape == (n // 2 - 8, n)
    assert int(result.kept.max()) < n
    assert not result.T[:, 5].any()
    error = A - A[:, result.kept] @ result.T
    assert float(error.norm()) <= 1.01 * pivoted_qr_errors(A, n // 2 - 8)[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_column_can_be_kept(dtype: torch.dtype) -> None:
    result = interpolation_at_rank(normal(2 * N, N).to(dtype), N)
    assert result is not None
    assert torch.equal(result.kept.sort().values, torch.arange(N))
    assert torch.equal(result.T[:, result.kept], torch.eye(N, dtype=dtype))
    assert result.frobenius_error == 0


@pytest.mark.parametrize("name", ["hilbert", "duplicate_columns", "kahan", "wide"])
def test_hard_matrices_are_left_to_the_full_ordering(name: str) -> None:
    A = FAMILIES[name](N, 0)
    assert interpolation_at_rank(A, 200) is None
    result = interpress.interpolative_decomposition(A, k=200)
    assert torch.equal(result.kept, column_ordering(A).kept(200))


@pytest.mark.parametrize(
    "A",
    [
        normal(300, 255),
        normal(300, 256) * 1e-200,
        normal(300, 256).float() * 1e20,
        torch.full((300, 256), torch.nan),
        torch.zeros(300, 256),
    ],
    ids=["small", "tiny", "huge", "nan", "zero"],
)
def test_other_matrices_are_left_to_the_full_ordering(A: Tensor) -> None:
    assert interpolation_at_rank(A, 10) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_errors_are_those_of_the_matrix_that_was_passed(dtype: torch.dtype) -> None:
    A = FAMILIES["random"](N, 0).to(dtype)
    expected = interpress.interpolative_decomposition(A, k=64).frobenius_error
    result = interpress.interpolative_decomposition(A, k=64)
    A.zero_()  # before the error is read for the first time
    assert result.frobenius_error == expected


def test_any_memory_layout_gives_the_same_result() -> None:
    A = FAMILIES["random"](N, 0)
    expected = interpress.interpolative_decomposition(A, k=64)
    for same in (A.T.contiguous().T, A.numpy(), np.asfortranarray(A.numpy())):
        result = interpress.interpolative_decomposition(same, k=64)
        assert torch.equal(result.T, expected.T)


def test_the_number_of_threads_does_not_change_the_selection() -> None:
    A = FAMILIES["decaying"](N, 0)
    threads, kept = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            kept.append(interpress.interpolative_decomposition(A, k=100).kept)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(kept[0], kept[1])
