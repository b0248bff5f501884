"""Single steps of the pipeline."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from interpress import Analysis, ArgumentError, Method
from interpress.allocation.problem import WidthLimits
from interpress.data.calibration_set import CalibrationSet
from interpress.pipeline.options import Options
from interpress.pipeline.steps import find, read_data, state_problem
from interpress.progress import display
from interpress.selection.orders import Orders, order_all

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))


def test_data_are_read_with_the_seed_and_checked() -> None:
    model = nn.Linear(6, 2)
    held = [
        torch.cat([e.args[0] for e in read_data(model, X, Options(seed=s)).batches("held")])
        for s in (0, 0, 5)
    ]
    assert torch.equal(held[0], held[1])
    assert not torch.equal(held[0], held[2])
    with pytest.raises(ValueError, match="empty"):
        read_data(model, [], Options())


def test_a_model_that_cannot_shrink_lists_reasons() -> None:
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
    data = CalibrationSet(X, model)
    assert [space.name for space in find(model, data, Options()).shrinkable] == ["0"]
    with pytest.raises(
        ArgumentError, match=r"all 2 spaces are frozen \(.*; 2: .*output of the model"
    ):
        find(model, data, Options(exclude=("0",)))


@pytest.fixture(scope="module")
def orders(demo_analysis: Analysis) -> Orders:
    with display(False) as bars:
        return order_all(demo_analysis.study, "weights", bars)


def test_the_problem_counts_what_the_budget_saves(demo_analysis: Analysis, orders: Orders) -> None:
    study, method = demo_analysis.study, Method(allocation="marginal", step=0.2)
    whole = study.spaces.cost()
    totals = {"flops": whole.flops, "params": whole.parameters}
    for kind, resource in (("params", "params"), ("flops", "flops"), ("error", "flops")):
        options = Options().asking({kind: 0.5}, method, WidthLimits(round_to=8))
        problem = state_problem(study, orders, None, options)
        assert problem.meter.total({}) == totals[resource]
        assert problem.step == 0.2
        assert all(w % 8 == 0 for widths in problem.allowed.values() for w in widths)
        override = state_problem(study, orders, None, options, resource="params")
        assert override.meter.total({}) == totals["params"]
    assert state_problem(study, orders, None, Options(method=method)).meter.total({}) == whole.flops
