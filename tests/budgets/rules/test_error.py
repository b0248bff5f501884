"""`error=`: certified at every tap of every space."""

from __future__ import annotations

import pytest
import torch
from tests.digits import Trained

import interpress
from interpress import Analysis, ArgumentError, Method
from interpress.surgery.projection_identity import measure_taps


def test_the_error_is_certified_at_every_tap(analysis: Analysis) -> None:
    result = analysis.compress(error=0.15)
    assert any(row.after < row.before for row in result.plan)
    assert all(row.error <= 0.15 for row in result.plan)
    cut = result.network.cut
    fit = torch.cat([e.args[0] for e in analysis.study.require_data().batches("fit")])
    measured = measure_taps(analysis.spaces, fit, list(cut.T))
    assert measured.keys() == cut.T.keys()
    for tap, Z in measured.items():
        Z, T = Z.double(), cut.T[tap].double()
        residual = Z - Z[:, cut.columns(analysis.spaces.taps[tap])] @ T
        assert torch.linalg.matrix_norm(residual, 2) <= 0.152 * torch.linalg.matrix_norm(Z, 2)
    tighter = analysis.compress(error=0.05)
    assert tighter.flops > result.flops


def test_the_widths_are_the_smallest_that_are_certified(analysis: Analysis) -> None:
    result = analysis.compress(error=0.15)
    name, width = "hidden", result.widths["hidden"]
    (view,) = result.orders.profiles[name].views
    ordering = view.ordering(result.orders[name].units)
    assert ordering.is_certified(width, 0.15, torch.float32)
    assert not ordering.is_certified(width - 1, 0.15, torch.float32)


def test_a_named_method_is_not_refitted_and_a_written_one_is(analysis: Analysis) -> None:
    assert not analysis.compress(error=0.2).method.refit
    assert analysis.compress(error=0.2, method=Method()).method.refit


def test_an_error_budget_cannot_go_without_the_correction(
    digits: Trained, analysis: Analysis
) -> None:
    with pytest.raises(ArgumentError, match="correct=False leaves T out"):
        analysis.compress(error=0.1, method=Method(correct=False))
    with pytest.raises(ArgumentError, match="correct=False leaves T out"):
        interpress.compress(
            digits.model, digits.calibration, error=0.1, method=Method(correct=False)
        )
