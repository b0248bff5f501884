"""Strong rank-revealing swaps: the bound on `T` and the guarantee on the error hold."""

import pytest
import torch
from benchmarks.matrices import FAMILIES

from interpress.errors import ArgumentError, InterpressError
from interpress.linalg import (
    ColumnOrdering,
    RFactor,
    column_ordering,
    interpolative_decomposition,
    order_as_given,
)
from interpress.linalg.strong import _exchange, _swap


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("bound", [1.1, 2.0])
def test_entries_are_bounded_and_T_still_interpolates(name: str, bound: float) -> None:
    A = FAMILIES[name](48, 0)
    ordering = column_ordering(A)
    for k in (0, 1, 12, 24, 47, 48):
        result = ordering.at_rank(k, max_entry=bound)
        assert result.k == k
        assert len(set(result.kept.tolist())) == k
        assert result.largest_entry <= bound * (1 + 1e-7)
        error = A - A[:, result.kept] @ result.T
        norm = float(torch.linalg.matrix_norm(A))
        true = float(torch.linalg.matrix_norm(error))
        assert true == pytest.approx(result.frobenius_error, rel=1e-8, abs=1e-12 * norm)
        # Gu and Eisenstat, theorem 3.2
        factor = (1 + bound**2 * k * (48 - k)) ** 0.5
        assert result.spectral_error <= factor * ordering.svd_bound(k).spectral + 1e-12 * norm


def test_swaps_improve_a_bad_selection() -> None:
    """Nearly parallel columns first: T is huge without swaps."""
    torch.manual_seed(0)
    A = torch.randn(80, 20, dtype=torch.float64)
    A[:, :5] = A[:, :1] + 1e-4 * torch.randn(80, 5, dtype=torch.float64)
    ordering = order_as_given(RFactor.from_root(A, 80), torch.arange(20))
    plain, bounded = ordering.at_rank(8), ordering.at_rank(8, max_entry=1.5)
    assert plain.largest_entry > 100
    assert bounded.largest_entry <= 1.5 * (1 + 1e-7)
    assert bounded.frobenius_error < plain.frobenius_error


def test_one_swap_updates_everything_exactly() -> None:
    torch.manual_seed(1)
    A = torch.randn(9, 7, dtype=torch.float64)
    kept, dropped = [0, 1, 2, 3], [4, 5, 6]

    def state() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        dual = torch.linalg.pinv(A[:, kept])
        T = dual @ A[:, dropped]
        return dual, A[:, dropped] - A[:, kept] @ T, T

    dual, E, T = state()
    _swap(dual, E, T, 2, 1)
    kept[2], dropped[1] = dropped[1], kept[2]
    for updated, expected in zip((dual, E, T), state(), strict=True):
        torch.testing.assert_close(updated, expected, rtol=1e-10, atol=1e-12)


def test_some_families_need_swaps() -> None:
    swapped = 0
    for family in FAMILIES.values():
        ordering = column_ordering(family(48, 0))
        count = min(24, ordering.numerical_rank)
        R11, R12 = ordering.R[:count, :count], ordering.R[:count, count:]
        T = torch.linalg.solve_triangular(R11, R12, upper=True)
        swapped += _exchange(ordering.R, T, count, 1.1) is not None
    assert swapped >= 3


@pytest.mark.parametrize("eps", [1e-1, 1e-3])
def test_accuracy_is_certified_for_the_swapped_selection(eps: float) -> None:
    A = FAMILIES["decaying"](48, 0)
    result = interpolative_decomposition(A, eps=eps, max_entry=1.2)
    error = torch.linalg.matrix_norm(A - A[:, result.kept] @ result.T, 2)
    assert float(error) <= eps * float(torch.linalg.matrix_norm(A, 2))
    assert result.largest_entry <= 1.2 * (1 + 1e-7)


@pytest.mark.parametrize("bound", [1, 0.5, -2, float("nan"), "two"])
def test_bad_bounds(bound: object) -> None:
    with pytest.raises(ArgumentError, match=r"give a bound above 1, such as 2"):
        column_ordering(torch.randn(9, 4)).at_rank(2, max_entry=bound)  # type: ignore[arg-type]


def test_swaps_end_if_squares_underflow() -> None:
    A = torch.diag(torch.tensor([1.0, 2e-15, 0.0], dtype=torch.float64)) * 1e-140
    result = column_ordering(A).at_rank(2, max_entry=2)
    assert result.k == 2
    assert result.largest_entry <= 2


def test_entries_that_overflow_raise() -> None:
    """NaN entries compare as False; they must not be returned as bounded."""
    R = torch.tensor([[1e-308, 0.0, 1e10], [0.0, 1.0, 0.0]], dtype=torch.float64)
    columns = torch.arange(3)
    independent = torch.tensor([True, True, False])
    ordering = ColumnOrdering(columns, independent, columns, R, floor=1e-15)
    with pytest.raises(InterpressError, match="raise max_entry or lower k"):
        ordering.at_rank(1, max_entry=2)
