"""Orders of all spaces for one selection."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import interpress
from interpress import Analysis, ArgumentError
from interpress.progress import display
from interpress.selection.held_out import corrected, half_errors_of_T
from interpress.selection.orders import Orders, _balanced, order_all, order_channels
from interpress.selection.profile import Profile


@pytest.fixture(scope="module")
def orders(analysis: Analysis) -> Orders:
    with display(False) as bars:
        return order_all(analysis.study, "pivoting", bars)


def test_every_shrinkable_space_is_ordered(orders: Orders, analysis: Analysis) -> None:
    assert set(orders) == {space.name for space in analysis.spaces.shrinkable}
    assert len(orders) == len(orders.profiles)


def test_errors_are_those_of_T_unless_the_selection_knows_better(
    orders: Orders, profiles: dict[str, Profile]
) -> None:
    order, profile = orders["inner.0"], orders.profiles["inner.0"]
    fitted = profile.squared_errors(order.units)
    half_errors = half_errors_of_T(profile, order.units)
    assert half_errors is not None
    torch.testing.assert_close(order.errors, corrected(fitted, half_errors))
    for width in (3, 6, 24, 45):  # fractions of 48 at which the halves are compared
        on_others = float(half_errors([width]))
        expected = profile.squared_error(order.units, width) / 3 + on_others * 2 / 3
        assert float(order.errors[width]) == pytest.approx(expected, rel=1e-5)
        assert on_others > float(fitted[width])
    eliminated = order_channels(profiles["inner.0"], "patches")
    assert float(eliminated.errors[20]) < float(profile.squared_errors(eliminated.units)[20])


def test_spaces_that_too_few_rows_describe_are_named() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 5)).eval()
    with display(False) as bars:
        for examples, trusted in ((1, False), (200, True)):
            study = interpress.analyze(model, torch.randn(examples, 6), progress=False).study
            assert (not order_all(study, "patches", bars).untrusted) == trusted


def test_the_seed_of_the_study_draws_random_orders(analysis: Analysis) -> None:
    studies = [replace(analysis.study, seed=seed) for seed in (0, 0, 1)]
    with display(False) as bars:
        units = [order_all(study, "random", bars)["inner.0"].units for study in studies]
    assert torch.equal(units[0], units[1])
    assert not torch.equal(units[0], units[2])


def test_an_unknown_selection_lists_the_choices(profiles: dict[str, Profile]) -> None:
    with pytest.raises(ArgumentError, match="selection='luck' is not known; choose one of bn-sc"):
        order_channels(profiles["hidden"], "luck")


def test_balancing_takes_the_same_fraction_of_every_cell_in_the_given_order() -> None:
    cells = torch.tensor([0, 0, 0, 0, 1, 1])  # twice as many of the first cell
    units = torch.tensor([3, 0, 1, 2, 5, 4])
    balanced = _balanced(units, cells)
    assert balanced.tolist() == [3, 5, 0, 1, 4, 2]
    one_cell = torch.zeros(6, dtype=torch.long)
    assert torch.equal(_balanced(units, one_cell), units)
