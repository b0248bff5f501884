"""The split of a budget between channels and ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.lowrank.planted import RANK, images, planted_cnn, planted_mlp, rows
from torch import nn

import interpress
from interpress import ArgumentError
from interpress.allocation.problem import Problem, WidthLimits
from interpress.calibration.study import Study
from interpress.files.checkpoint import Checkpoint
from interpress.lowrank.layers import factorable_layers
from interpress.lowrank.spectra import Spectra, measure_spectra
from interpress.lowrank.split import split_budget
from interpress.pipeline.steps import state_problem
from interpress.progress import display
from interpress.surgery.thin_layers import with_thin_layers


def prepared(
    model: nn.Module, data: Any, resource: str = "flops"
) -> tuple[Study, Problem, Spectra]:
    """Return what a split looks at."""
    analysis = interpress.analyze(model, data, progress=False)
    options = analysis.options.asking({resource: 0.5}, "preserve", WidthLimits(), False)
    study = analysis.study
    with display(False) as bars:
        orders, effects = analysis._ordered(options, bars, Checkpoint())
    problem = state_problem(study, orders, effects, options, allocation="measured")
    layers = factorable_layers(study.spaces.program)
    return study, problem, measure_spectra(study.spaces.program, layers, study.data.batches("fit"))


@pytest.fixture(scope="module")
def mlp() -> tuple[Study, Problem, Spectra]:
    return prepared(planted_mlp(), rows())


@pytest.fixture(scope="module", params=["flops", "params"])
def cnn(request: pytest.FixtureRequest) -> tuple[str, tuple[Study, Problem, Spectra]]:
    return request.param, prepared(planted_cnn(), images(), request.param)


@pytest.mark.parametrize("price", [1.0, 0.1])
@pytest.mark.parametrize("fraction", [0.8, 0.5, 0.3])
def test_the_budget_is_met_and_used(
    cnn: tuple[str, tuple[Study, Problem, Spectra]], price: float, fraction: float
) -> None:
    resource, (study, problem, spectra) = cnn
    split = split_budget(problem, spectra, fraction, resource, price=price)
    cost = study.spaces.cost(split.widths)
    whole = study.spaces.cost()
    thin = with_thin_layers(interpress.shrink(study.spaces, problem.plan(split.widths).kept),
                            split.ranks)  # fmt: skip
    if resource == "params":
        left = sum(p.numel() for p in thin.parameters()) / whole.parameters
    else:
        left = interpress.demo.flops(thin, images(4)) / whole.flops
        assert left <= cost.flops / whole.flops
    assert 0.85 * fraction < left <= fraction + 1e-9


def test_a_planted_rank_is_taken_before_anything_is_lost(
    mlp: tuple[Study, Problem, Spectra],
) -> None:
    _, problem, spectra = mlp
    weights = 16 * 48 + 48 * 48 + 48 * 8
    lossless = (weights - 48 * 48 + RANK * 96) / weights
    split = split_budget(problem, spectra, lossless + 1e-6, "flops")
    assert split.ranks == {"2": RANK}
    assert split.widths == problem.full()


def test_a_high_price_leaves_layers_whole(mlp: tuple[Study, Problem, Spectra]) -> None:
    _, problem, spectra = mlp
    assert split_budget(problem, spectra, 0.8, "flops", price=1e9).ranks.keys() <= {"2"}
    many = split_budget(problem, spectra, 0.2, "flops", price=1e-9)
    assert many.widths == problem.full()
    assert len(many.ranks) > 1


def test_what_cannot_be_reached_is_an_error(mlp: tuple[Study, Problem, Spectra]) -> None:
    _, problem, spectra = mlp
    with pytest.raises(ArgumentError, match=r"flops=0.001 cannot be reached"):
        split_budget(problem, spectra, 0.001, "flops")


def test_the_meter_counts_savings_as_totals_do(
    cnn: tuple[str, tuple[Study, Problem, Spectra]],
) -> None:
    from interpress.lowrank.split import _joint, _JointMeter

    resource, (_, problem, spectra) = cnn
    sizes = {la.name: problem.spaces.cost.layer_sizes(la.dense.weight) for la in spectra.layers}
    meter = _JointMeter(problem.meter, spectra.layers, sizes, resource)
    joint = _joint(problem, spectra, meter, {}, 1.0)
    generator = torch.Generator().manual_seed(0)

    def draw(sizes: list[int]) -> int:
        return sizes[int(torch.randint(len(sizes), (1,), generator=generator))]

    for _ in range(20):
        widths = {name: draw(sizes) for name, sizes in joint.allowed.items()}
        for name, allowed in joint.allowed.items():
            width = draw(allowed)
            saved = meter.total(widths) - meter.total({**widths, name: width})
            assert abs(meter.saved(widths, name, width) - saved) < 1e-6 * meter.total({})
            if saved:
                changed = {**widths, name: width}
                for other in joint.allowed.keys() - meter.neighbours(name):
                    before = meter.saved(widths, other, 1)
                    assert abs(meter.saved(changed, other, 1) - before) < 1e-6
