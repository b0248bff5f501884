"""Predicted errors on other rows, against errors on rows that nothing was fitted to."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import interpress
from interpress.calibration.study import Study
from interpress.linalg.elimination import RIDGE
from interpress.selection.held_out import corrected, half_errors_of_patches, half_errors_of_T
from interpress.selection.orders import order_channels
from interpress.selection.profile import Profile, profiles_of

WIDTHS = (8, 16, 24)
INPUTS, SIZE = 40, 32


def inputs(rows: int, seed: int) -> Tensor:
    return torch.randn(rows, INPUTS, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(INPUTS, SIZE), nn.ReLU(), nn.Linear(SIZE, 6)).eval()


@pytest.fixture(scope="module")
def study(model: nn.Sequential) -> Study:
    """120 rows to fit, of 32 channels that depend on each other weakly."""
    return interpress.analyze(model, inputs(150, 1), progress=False).study


@pytest.fixture(scope="module")
def profile(study: Study) -> Profile:
    (profile,) = profiles_of(study.spaces, study.statistics).values()
    return profile


def fresh(model: nn.Sequential) -> tuple[Tensor, Tensor, float]:
    """Return hidden rows, the weights that read them, and the variance of the outputs."""
    with torch.no_grad():
        Z = model[1](model[0](inputs(20_000, 2))).double()
    U = model[2].weight.detach().double().T
    return Z, U, float((Z @ U).var(0, correction=0).sum())


def test_a_third_and_two_thirds() -> None:
    errors = torch.linspace(1, 0, 17, dtype=torch.float64)
    asked: list[int] = []

    def half_errors(widths: list[int]) -> Tensor:
        asked.extend(widths)
        return errors[torch.tensor(widths)] + 0.3

    result = corrected(errors, half_errors)
    assert asked == [1, 2, 4, 6, 8, 10, 12, 14, 15]
    torch.testing.assert_close(result[1:-1], errors[1:-1] + 0.2)
    assert float(result[0]) == 1.0  # nothing is fitted with no unit, and nothing lost with all
    assert float(result[-1]) == 0.0


def test_errors_between_are_interpolated_and_never_lowered() -> None:
    errors = torch.full((65,), 0.5, dtype=torch.float64)
    slope = corrected(errors, lambda widths: errors[0] + torch.tensor(widths).double() / 64)
    torch.testing.assert_close(slope[4:61] - 0.5, torch.arange(4, 61).double() / 64 * 2 / 3)
    smaller = corrected(errors, lambda widths: torch.zeros(len(widths), dtype=torch.float64))
    assert torch.equal(smaller, errors)
    assert corrected(errors, None) is errors
    assert torch.equal(corrected(errors[:2], lambda widths: errors[widths]), errors[:2])


def test_the_error_of_T_on_other_rows_is_predicted(
    model: nn.Sequential, study: Study, profile: Profile
) -> None:
    """An order that was chosen by the same rows is still judged too well, by up to a third."""
    Z, U, variance = fresh(model)
    for selection, tolerance in (("random", 0.15), ("weights", 0.35)):
        order = order_channels(profile, selection)
        fitted = profile.squared_errors(order.units)
        assert half_errors_of_T(profile, order.units) is not None
        for width in WIDTHS[1:]:
            kept = order.kept(width)
            (T,) = study.interpolations({profile.space.name: kept}).values()
            lost = (Z - Z[:, kept] @ T.double()) @ U
            true = float(lost.square().sum()) / len(Z) / variance
            assert float(order.errors[width]) == pytest.approx(true, rel=tolerance)
            assert abs(float(order.errors[width]) - true) < abs(float(fitted[width]) - true)


def test_the_error_of_solved_consumers_on_other_rows_is_predicted(
    model: nn.Sequential, study: Study, profile: Profile
) -> None:
    order = order_channels(profile, "patches")
    assert half_errors_of_patches(profile, order.units) is not None
    data = torch.cat([e.args[0] for e in study.require_data().batches("fit")])
    with torch.no_grad():
        X = model[1](model[0](data)).double()
    Z, U, variance = fresh(model)
    mean = X.mean(0)
    X, Z = X - mean, Z - mean  # the bias is solved as well
    G = X.T @ X / len(X)
    G.diagonal().add_(RIDGE * float(G.diagonal().mean()))
    (view,) = profile.views
    assert view.patches is not None
    for width in WIDTHS:
        kept = order.kept(width)
        W = torch.zeros_like(U)
        W[kept] = torch.linalg.solve(G[kept][:, kept], G[kept] @ U)
        true = float((Z @ (U - W)).square().sum()) / len(Z) / variance
        assert float(order.errors[width]) == pytest.approx(true, rel=0.25)


def test_without_halves_nothing_is_corrected(model: nn.Sequential) -> None:
    study = interpress.analyze(model, inputs(1, 1), progress=False).study
    (profile,) = profiles_of(study.spaces, study.statistics).values()
    units = torch.arange(SIZE)
    assert half_errors_of_T(profile, units) is None
    assert half_errors_of_patches(profile, units) is None
