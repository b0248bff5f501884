"""`interpolative_decomposition`: accepted inputs, and properties that hold for every matrix."""

import doctest

import numpy as np
import pytest
import scipy.linalg.interpolative
import torch
from benchmarks.matrices import FAMILIES
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import interpress
from interpress.errors import ArgumentError, DataError
from interpress.linalg import column_ordering, interpolative


@st.composite
def matrices(draw: st.DrawFn) -> Tensor:
    """Draw a matrix of any shape, rank, decay and scale, with repeated and zero columns."""
    rows, n = draw(st.integers(1, 40)), draw(st.integers(1, 30))
    core = draw(st.integers(0, min(rows, n)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    decay = torch.logspace(0, -draw(st.floats(0, 8)), core, dtype=torch.float64)
    left = torch.randn(rows, core, generator=generator, dtype=torch.float64)
    right = torch.randn(core, n, generator=generator, dtype=torch.float64)
    A = (left * decay) @ right
    for target in draw(st.lists(st.integers(0, n - 1), max_size=3)):
        A[:, target] = A[:, draw(st.integers(0, n - 1))] * draw(st.sampled_from([0.0, 1.0, -2.0]))
    return A * 10.0 ** draw(st.integers(-20, 20))


@settings(max_examples=150, deadline=None)
@given(matrices(), st.data())
def test_every_rank_of_every_matrix(A: Tensor, data: st.DataObject) -> None:
    n = A.shape[1]
    k = data.draw(st.integers(0, n))
    result = interpress.interpolative_decomposition(A, k=k)
    norm = float(torch.linalg.matrix_norm(A))
    error = A - A[:, result.kept] @ result.T
    assert result.T.shape == (k, n)
    assert len(set(result.kept.tolist())) == k
    assert torch.equal(result.T[:, result.kept], torch.eye(k, dtype=A.dtype))
    true = float(torch.linalg.matrix_norm(error))
    assert true == pytest.approx(result.frobenius_error, rel=1e-6, abs=1e-12 * norm)
    best = torch.linalg.svdvals(A)[k:]
    assert true >= float(torch.linalg.vector_norm(best)) - 1e-12 * norm
    # column pivoting cannot be worse than this (Gu and Eisenstat, theorem 7.2)
    if k and len(best):
        assert (
            float(torch.linalg.matrix_norm(error, 2)) <= 2.0**k * n * float(best[0]) + 1e-11 * norm
        )
    if k == n:
        assert true == 0


@settings(max_examples=100, deadline=None)
@given(matrices(), st.floats(0, 1))
def test_every_accuracy_of_every_matrix(A: Tensor, eps: float) -> None:
    result = interpress.interpolative_decomposition(A, eps=eps)
    error = A - A[:, result.kept] @ result.T
    norm = float(torch.linalg.matrix_norm(A, 2))
    assert float(torch.linalg.matrix_norm(error, 2)) <= eps * norm * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(matrices(), st.floats(1.05, 5), st.data())
def test_every_bound_on_T(A: Tensor, bound: float, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, A.shape[1]))
    result = interpress.interpolative_decomposition(A, k=k, max_entry=bound)
    assert result.k == k
    assert result.largest_entry <= bound * (1 + 1e-7)
    error = A - A[:, result.kept] @ result.T
    norm = float(torch.linalg.matrix_norm(A))
    true = float(torch.linalg.matrix_norm(error))
    assert true == pytest.approx(result.frobenius_error, rel=1e-6, abs=1e-11 * norm)


@pytest.mark.parametrize("name", FAMILIES)
def test_no_worse_than_scipy_interpolative(name: str) -> None:
    A, k = FAMILIES[name](64, 0), 16
    index, projection = scipy.linalg.interpolative.interp_decomp(A.numpy(), k, rand=False)
    theirs = scipy.linalg.interpolative.reconstruct_matrix_from_id(
        A.numpy()[:, index[:k]], index, projection
    )
    result = interpress.interpolative_decomposition(A, k=k)
    ours = A - A[:, result.kept] @ result.T
    norm = np.linalg.norm(A)
    assert np.linalg.norm(ours) <= 1.05 * np.linalg.norm(A.numpy() - theirs) + 1e-13 * norm


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_result_has_the_dtype_of_the_input(dtype: torch.dtype) -> None:
    A = FAMILIES["activations"](16, 0).to(dtype)
    result = interpress.interpolative_decomposition(A, k=8)
    assert result.T.dtype == dtype
    A = A.double()
    error = float(torch.linalg.matrix_norm(A - A[:, result.kept] @ result.T.double()))
    assert error <= result.frobenius_error + 4 * torch.finfo(dtype).eps * float(A.norm())


def test_reported_errors_include_the_rounding_of_T_in_half_precision() -> None:
    generator = torch.Generator().manual_seed(0)
    factors = (torch.randint(-3, 4, s, generator=generator).double() for s in ((50, 3), (3, 12)))
    A = next(factors) @ next(factors)  # exact in bfloat16
    result = interpress.interpolative_decomposition(A.bfloat16(), k=3)
    error = A - A[:, result.kept] @ result.T.double()
    assert result.spectral_error == pytest.approx(
        float(torch.linalg.matrix_norm(error, 2)), rel=1e-6
    )
    assert result.frobenius_error == pytest.approx(float(error.norm()), rel=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_numpy_arrays_are_accepted_and_unchanged(dtype: type, layout: str) -> None:
    A = np.asarray(FAMILIES["decaying"](20, 0), dtype=dtype, order=layout)
    before = A.copy()
    result = interpress.interpolative_decomposition(A, eps=np.float32(1e-2))
    assert interpress.interpolative_decomposition(A, k=np.int64(3)).k == 3
    error = np.linalg.norm(
        A.astype(float) - A.astype(float)[:, result.kept] @ result.T.double().numpy(), 2
    )
    assert error <= 1.0001e-2 * np.linalg.norm(A.astype(float), 2)
    np.testing.assert_array_equal(A, before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("eps", [0.3, 3e-2, 1e-3, 1e-6])
def test_the_certificate_covers_the_rounding_of_T(dtype: torch.dtype, eps: float) -> None:
    A = FAMILIES["decaying"](40, 0).to(dtype)
    result = interpress.interpolative_decomposition(A, eps=eps)
    exact = A.double()
    error = exact - exact[:, result.kept] @ result.T.double()
    norm = float(torch.linalg.matrix_norm(exact, 2))
    assert float(torch.linalg.matrix_norm(error, 2)) <= eps * norm


def test_columns_too_many_for_a_gram_matrix() -> None:
    generator = torch.Generator().manual_seed(0)
    spread = torch.randn(8, 200_000, generator=generator, dtype=torch.float64)
    A = FAMILIES["random"](8, 0) * torch.logspace(0, -3, 8, dtype=torch.float64) @ spread
    result = interpress.interpolative_decomposition(A, k=8)
    error = A - A[:, result.kept] @ result.T
    assert float(error.norm()) <= 1e-12 * float(A.norm())
    rougher = interpress.interpolative_decomposition(A, eps=0.2)
    error = A - A[:, rougher.kept] @ rougher.T
    assert rougher.k < 8
    assert torch.linalg.matrix_norm(error, 2) <= 0.2 * torch.linalg.matrix_norm(A, 2)


@pytest.mark.parametrize(
    "A",
    [
        np.random.default_rng(0).standard_normal((9, 5)).astype(">f8"),
        np.random.default_rng(0).standard_normal((9, 5)).astype(np.longdouble),
        np.random.default_rng(0).standard_normal((9, 5))[::-1, ::-1],
        np.random.default_rng(0).standard_normal((4, 5))[1:2][::-1],
        np.broadcast_to(np.arange(5.0), (9, 5)),
    ],
    ids=["big-endian", "longdouble", "negative-strides", "one-row", "read-only"],
)
def test_unusual_numpy_arrays(A: np.ndarray) -> None:
    result = interpress.interpolative_decomposition(A, k=min(A.shape[0], 3))
    plain = torch.from_numpy(np.array(A, dtype=np.float64))
    expected = interpress.interpolative_decomposition(plain, k=min(A.shape[0], 3))
    assert torch.equal(result.T, expected.T)
    assert result.T.is_contiguous()


def test_inputs_are_unchanged_and_gradients_are_detached() -> None:
    A = torch.randn(30, 10, requires_grad=True)
    before = A.detach().clone()
    result = interpress.interpolative_decomposition(A, k=5)
    assert not result.T.requires_grad
    assert torch.equal(A, before)
    assert A.grad is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give exactly one of k= and eps=; got neither"),
        ({"k": 2, "eps": 0.1}, "got both k=2 and eps=0.1"),
        ({"k": 7}, "k=7 for 6 columns; give a k from 0 to 6"),
        ({"k": -1}, "k=-1 for 6 columns"),
        ({"k": 2.0}, "k=2.0 for 6 columns"),
        ({"eps": -0.1}, "eps=-0.1; give a relative error of at least 0"),
        ({"k": 2, "max_entry": 0.9}, "max_entry=0.9; give a bound above 1"),
    ],
)
def test_bad_arguments(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        interpress.interpolative_decomposition(torch.randn(9, 6), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("A", "message"),
    [
        (
            torch.ones(3, 3, dtype=torch.int64),
            "dtype torch.int64; convert it to a real float dtype",
        ),
        (torch.ones(3, 3, dtype=torch.complex64), "dtype torch.complex64"),
        (np.ones((3, 3), dtype=int), "dtype torch.int64"),
        (np.ones((3, 3), dtype=complex), "dtype complex128"),
        (np.array([["a"]]), "dtype <U1"),
        (torch.ones(3), r"shape \(3,\); pass a matrix"),
        (torch.ones(2, 3, 4), r"shape \(2, 3, 4\)"),
        (torch.ones(0, 3), r"empty, shape \(0, 3\); pass at least one row"),
        (torch.ones(3, 0), r"empty, shape \(3, 0\)"),
        (np.ma.masked_array(np.ones((3, 3))), "A is a masked array; fill or drop"),
        (torch.ones(3, 3, device="meta"), "on meta; pass a dense tensor"),
        (torch.eye(3).to_sparse(), "torch.sparse_coo tensor"),
        ([[1.0, 2.0]], "A is a list; pass a torch.Tensor or a NumPy array"),
    ],
)
def test_bad_matrices(A: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        interpress.interpolative_decomposition(A, k=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(30, 10), (5, 10)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nan_and_inf_are_located(shape: tuple[int, int], dtype: torch.dtype) -> None:
    A = torch.randn(shape, dtype=dtype)
    A[3, 4] = torch.nan
    with pytest.raises(DataError, match=r"NaN or Inf.*row 3, (column|channel) 4"):
        interpress.interpolative_decomposition(A, k=1)


def test_one_ordering_gives_the_result_for_every_k() -> None:
    A = FAMILIES["activations"](64, 0)
    ordering = column_ordering(A)
    for k in (1, 20, 64):
        result = interpress.interpolative_decomposition(A, k=k)
        assert torch.equal(result.kept, ordering.kept(k))
        assert torch.equal(result.T, ordering.at_rank(k).T)


def test_the_docstring_example_runs() -> None:
    torch.manual_seed(0)
    results = doctest.testmod(interpolative, extraglobs={"torch": torch})
    assert results.attempted >= 4
    assert results.failed == 0
