"""The trade-off as a Plotly figure."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

import interpress
from interpress import Method, Result
from interpress.report.figure import figure_of


def test_the_result_is_marked_on_the_predicted_curve(result: Result) -> None:
    pytest.importorskip("plotly")
    curve, marked = figure_of(result).data
    assert list(curve.x) == [100 * point.flops for point in result.curve]
    assert curve.y[0] == 100
    assert marked.x[0] == pytest.approx(100 * result.flops)
    assert marked.y[0] == pytest.approx(100 * float(result.agreement or 0))


def test_a_regression_shows_the_predicted_loss() -> None:
    pytest.importorskip("plotly")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
    result = interpress.compress(model, torch.randn(100, 6), flops=0.5, method=Method(refit=False))
    figure = figure_of(result)
    curve, marked = figure.data
    assert list(curve.y) == [point.loss for point in result.curve]
    assert marked.y[0] == result.point.loss
    assert figure.layout.yaxis.title.text == "predicted loss"


def test_without_plotly_the_remedy_is_named(
    result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(interpress.InterpressError, match=r"pip install 'interpress\[report\]'"):
        result.plot()
