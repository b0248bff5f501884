"""One tap as one space sees it: errors from the factor equal errors from the activations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interpress.calibration.halves import Halves
from interpress.linalg.factor import RFactor
from interpress.selection.tap_view import TapView

GENERATOR = torch.Generator().manual_seed(0)
Z = torch.randn(60, 8, generator=GENERATOR, dtype=torch.float64)
U = torch.randn(8, 3, generator=GENERATOR, dtype=torch.float64)


def view_of(Z: Tensor, per_unit: int | Tensor = 1, variance: float | None = None) -> TapView:
    factor = RFactor.from_gram(Z.T @ Z, len(Z))
    halves = Halves(factor, torch.zeros_like(factor.G), Z.sum(0).expand(2, -1), (len(Z), 0))
    counts = torch.full((8 // per_unit,), per_unit) if isinstance(per_unit, int) else per_unit
    return TapView("tap", counts, lambda: halves, lambda: variance, lambda: U @ U.T, lambda: None)


@pytest.mark.parametrize(("per_unit", "width"), [(1, 3), (1, 8), (2, 1), (2, 3), (4, 1)])
def test_the_squared_error_is_that_of_the_least_squares_solution(per_unit: int, width: int) -> None:
    view = view_of(Z, per_unit)
    units = torch.randperm(8 // per_unit, generator=torch.Generator().manual_seed(1))
    kept = view.columns(units[:width])
    assert len(kept) == width * per_unit
    T = torch.linalg.lstsq(Z[:, kept], Z).solution
    expected = float(((Z - Z[:, kept] @ T) @ U).square().sum())
    assert view.squared_error(units, width) == pytest.approx(expected, rel=1e-8, abs=1e-10)
    tails = view.ordering(units).weighted_tails(view.H)
    assert float(tails[len(kept)]) ** 2 == pytest.approx(expected, rel=1e-8, abs=1e-10)


def test_kept_columns_that_depend_on_each_other_are_no_problem() -> None:
    repeated = Z.clone()
    repeated[:, 1] = repeated[:, 0]
    view = view_of(repeated)
    both, one = (view.squared_error(torch.tensor(order), width) for order, width in
                 (([0, 1, 2, 3, 4, 5, 6, 7], 3), ([0, 2, 1, 3, 4, 5, 6, 7], 2)))  # fmt: skip
    assert both == pytest.approx(one, rel=1e-6)


def test_errors_are_relative_to_the_variance_of_the_consumers_output() -> None:
    assert view_of(Z).energy == pytest.approx(float((Z @ U).square().sum()))
    assert view_of(Z, variance=2.5).energy == 2.5 * 60


def test_columns_of_units_stand_side_by_side() -> None:
    assert view_of(Z, 4).columns(torch.tensor([1, 0])).tolist() == [4, 5, 6, 7, 0, 1, 2, 3]


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_units_may_have_different_numbers_of_columns(width: int) -> None:
    view = view_of(Z, torch.tensor([2, 0, 5, 1]))
    units = torch.tensor([1, 3, 0, 2])
    assert view.columns(units).tolist() == [7, 0, 1, 2, 3, 4, 5, 6]
    assert view.widths(units).tolist() == [0, 0, 1, 3, 8]
    kept = view.columns(units[:width])
    T = torch.linalg.lstsq(Z[:, kept], Z).solution if len(kept) else torch.zeros(0, 8)
    expected = float(((Z - Z[:, kept] @ T.to(Z)) @ U).square().sum())
    assert view.squared_error(units, width) == pytest.approx(expected, rel=1e-8, abs=1e-10)


def test_sums_over_the_columns_of_a_unit() -> None:
    view = view_of(Z, torch.tensor([2, 0, 5, 1]))
    assert view.summed_by_unit(torch.arange(8)).tolist() == [1, 0, 20, 7]
    matrix = torch.arange(16).reshape(2, 8)
    assert view.summed_by_unit(matrix, 1).tolist() == [[1, 0, 20, 7], [17, 0, 60, 15]]
