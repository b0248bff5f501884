"""A layer that reads groups of heads is solved for all its inputs."""

from __future__ import annotations

import torch
from tests.pretrained.models import build, texts

import interpress
from interpress import demo
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.graph.model_state import output_tensors
from interpress.network.shared_heads import absorbed, for_all_inputs, replacing
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import projecting
from interpress.surgery.weights import copy_with, shrunk_copy


def test_all_inputs_fit_better_than_one_matrix_for_all_heads() -> None:
    model = build("llama")
    study = interpress.analyze(model, texts(60), progress=False).study
    space = next(space for space in study.spaces.shrinkable if space.heads)
    (tap,) = space.taps
    kept = {space.name: torch.tensor([0, 2, 3])}
    cut = Cut(study.spaces, kept, study.interpolations(kept))
    weights = absorbed(study, for_all_inputs(study, cut, cut.T))
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


def test_interpolated_inputs_give_what_the_new_weights_give() -> None:
    study = interpress.analyze(build("llama"), texts(60), progress=False).study
    space = next(space for space in study.spaces.shrinkable if space.heads)
    kept = {space.name: torch.tensor([0, 2, 3])}
    cut = Cut(study.spaces, kept, study.interpolations(kept))
    found = for_all_inputs(study, cut, cut.T)
    smaller = copy_with(shrunk_copy(cut), absorbed(study, found))
    example = Example((texts(5, seed=1),)).without_cache(study.original)
    hook = replacing(study, found, projecting(study.spaces, cut))
    outputs = Executor(study.spaces.program).run(example, before=hook)
    expected = output_tensors(smaller, example)
    assert torch.allclose(outputs[0], expected[0], atol=1e-4)
    plain = Executor(study.spaces.program).run(example, before=projecting(study.spaces, cut))
    assert not torch.allclose(outputs[0], plain[0], atol=1e-2)


def test_other_layers_and_other_networks_have_no_such_weights() -> None:
    study = interpress.analyze(build("opt"), texts(60), progress=False).study
    kept = {s.name: torch.arange(s.size - s.step) for s in study.spaces.shrinkable[:2]}
    cut = Cut(study.spaces, kept, study.interpolations(kept))
    assert cut.T
    assert for_all_inputs(study, cut, cut.T) == {}
    study = interpress.analyze(demo.network(), demo.load_digits().calibration[:60]).study
    kept = {s.name: torch.arange(s.size - 1) for s in study.spaces.shrinkable}
    cut = Cut(study.spaces, kept, study.interpolations(kept))
    assert for_all_inputs(study, cut, cut.T) == {}
