"""A layer that reads groups of heads is solved for all its inputs."""

from __future__ import annotations

import torch
from tests.pretrained.models import build, texts

import interpress
from interpress import demo
from interpress.network.shared_heads import solved_for_all_inputs
from interpress.surgery.cut import Cut


def test_all_inputs_fit_better_than_one_matrix_for_all_heads() -> None:
    model = build("llama")
    study = interpress.analyze(model, texts(60), progress=False).study
    space = next(space for space in study.spaces.shrinkable if space.heads)
    (tap,) = space.taps
    kept = {space.name: torch.tensor([0, 2, 3])}
    cut = Cut(study.spaces, kept, study.interpolations(kept))
    weights = solved_for_all_inputs(study, cut, cut.T)
    ((name, solved),) = weights.items()
    G = study.statistics.moments[tap].moments(centred=False).double()
    absorber = study.spaces.taps[tap].absorbers[0]
    stays = torch.isin(absorber.column, cut.columns(study.spaces.taps[tap]))
    W = model.get_parameter(name).detach().double()

    def error(smaller: torch.Tensor) -> float:
        wide = torch.zeros_like(W)
        wide[:, stays] = smaller.double()
        return float(((W - wide) @ G * (W - wide)).sum())

    assert solved.shape == cut.weights[name].shape
    assert solved.dtype == torch.float32
    assert error(solved) < 0.98 * error(cut.weights[name])
    exact = W @ torch.linalg.solve(G[stays][:, stays], G[stays]).T
    assert error(solved) < 1.01 * error(exact)


def test_other_layers_and_other_networks_have_no_such_weights() -> None:
    study = interpress.analyze(build("opt"), texts(60), progress=False).study
    kept = {s.name: torch.arange(s.size - s.step) for s in study.spaces.shrinkable[:2]}
    cut = Cut(study.spaces, kept, study.interpolations(kept))
    assert cut.T
    assert solved_for_all_inputs(study, cut, cut.T) == {}
    study = interpress.analyze(demo.network(), demo.load_digits().calibration[:60]).study
    kept = {s.name: torch.arange(s.size - 1) for s in study.spaces.shrinkable}
    cut = Cut(study.spaces, kept, study.interpolations(kept))
    assert solved_for_all_inputs(study, cut, cut.T) == {}
