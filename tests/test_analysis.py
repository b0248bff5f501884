"""`Analysis`: one pass over the data answers any number of budgets."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from tests.digits import Trained
from torch import nn

import interpress
from interpress import Analysis, ArgumentError, Method
from interpress import analysis as module

CUT = Method(refit=False)


def test_the_curve_falls_and_fits_what_budgets_give(analysis: Analysis) -> None:
    curve = analysis.curve()
    assert curve[0].flops == curve[0].params == 1.0
    assert curve[0].loss == 0.0
    assert len(curve) > 30
    for a, b in itertools.pairwise(curve):
        assert b.flops < a.flops
        assert b.loss >= a.loss
    half = analysis.compress(flops=0.5, method=CUT)
    near = min(curve, key=lambda point: abs(point.flops - 0.5))
    difference = sum(abs(near.widths[name] - width) for name, width in half.widths.items())
    assert difference < 0.2 * sum(half.widths.values())


def test_the_curve_takes_a_method_and_limits(analysis: Analysis) -> None:
    curve = analysis.curve(method="constant-id", points=5, round_to=8, min_width=8)
    assert 3 <= len(curve) <= 5
    assert all(w % 8 == 0 and w >= 8 for point in curve for w in point.widths.values())


@pytest.mark.parametrize("points", [1, 0, 2.5, "many", True])
def test_the_number_of_points_is_checked(analysis: Analysis, points: Any) -> None:
    with pytest.raises(ArgumentError, match=rf"points={points!r}; give a whole number of at least"):
        analysis.curve(points=points)


def test_an_analysis_gives_what_compress_gives(digits: Trained, analysis: Analysis) -> None:
    direct = interpress.compress(digits.model, digits.calibration, flops=0.4)
    again = analysis.compress(flops=0.4)
    assert direct.widths == again.widths
    a, b = direct.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_orders_and_effects_are_computed_once_per_selection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)).eval()
    analysis = interpress.analyze(model, torch.randn(100, 6))
    calls: list[str] = []
    for name in ("order_all", "measure_effects"):
        function = getattr(module, name)

        def counted(*args: Any, _name: str = name, _function: Any = function) -> Any:
            calls.append(_name)
            return _function(*args)

        monkeypatch.setattr(module, name, counted)
    first = analysis.compress(flops=0.5, method=CUT)
    second = analysis.compress(params=0.7, method=CUT)
    analysis.curve(method=CUT)
    assert calls == ["order_all", "measure_effects"]
    assert first.orders is second.orders
    analysis.compress(flops=0.5, method="iterative-id")
    assert calls == ["order_all", "measure_effects", "order_all"]  # its allocation measures nothing


def test_what_was_decided_when_analysing_stays(digits: Trained) -> None:
    analysis = interpress.analyze(
        digits.model, digits.calibration, exclude="hidden", kind="regression", seed=3, memory=2.0
    )
    result = analysis.compress(flops=0.7, method=CUT)
    assert "hidden" not in result.widths
    assert result.agreement is not None
    assert result.agreement.kind == "regression"
    assert (result.options.seed, result.options.memory, result.seed) == (3, 2.0, 3)


def test_without_patches_their_selection_uses_channels(digits: Trained, analysis: Analysis) -> None:
    fast = interpress.analyze(digits.model, digits.calibration, patches=False)
    assert fast.study.statistics.moments == {}
    assert analysis.study.statistics.moments != {}
    assert fast.compress(flops=0.5).flops <= 0.5


def test_the_model_is_left_as_it_was(digits: Trained) -> None:
    model = digits.fresh().train()
    analysis = interpress.analyze(model, digits.calibration)
    assert model.training
    analysis.compress(flops=0.5)
    assert model.training
    state = digits.model.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
