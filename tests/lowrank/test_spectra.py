"""Moments of outputs, and what a rank is predicted to lose."""

from __future__ import annotations

import torch
from tests.lowrank.planted import RANK, images, planted_cnn, planted_mlp, rows
from torch import Tensor, nn

from interpress.graph.capture import capture
from interpress.graph.example import Example
from interpress.lowrank.layers import factorable_layers
from interpress.lowrank.spectra import Spectra, measure_spectra


def spectra_of(model: nn.Module, data: Tensor) -> Spectra:
    """Return the spectra of a model on batches of 50."""
    program = capture(model, data[:4])
    examples = [Example((batch,)) for batch in data.split(50)]
    return measure_spectra(program, factorable_layers(program), examples)


def test_moments_are_those_of_the_outputs() -> None:
    model, data = planted_mlp(), rows()
    spectra = spectra_of(model, data)
    outputs = model[:3](data)
    moments = spectra.moments["2"]
    torch.testing.assert_close(moments.mean(), outputs.mean(0))
    expected = torch.cov(outputs.T, correction=0)
    torch.testing.assert_close(moments.covariance(None, centred=True), expected)
    second = outputs.T @ outputs / len(outputs)
    torch.testing.assert_close(moments.covariance(None, centred=False), second)
    torch.testing.assert_close(moments.variances(), outputs.var(0, correction=0))
    assert moments.count == [150, 150]
    halves = [moments.covariance(half, centred=True) for half in (0, 1)]
    torch.testing.assert_close((halves[0] + halves[1]) / 2, expected)
    even = outputs[0::2] - outputs.mean(0)
    torch.testing.assert_close(halves[0], even.T @ even / 150)


def test_the_planted_rank_loses_nothing() -> None:
    for model, data, name in ((planted_mlp(), rows(), "2"), (planted_cnn(), images(), "3")):
        spectra = spectra_of(model, data)
        layer = next(layer for layer in spectra.layers if layer.name == name)
        losses = spectra.losses(layer, torch.arange(layer.dense.shape[0]))
        assert abs(float(losses[0]) - 1) < 0.02  # the means of halves differ from that of all
        assert float(losses[RANK]) < 1e-9
        assert float(losses[RANK - 1]) > 1e-3
        assert bool((losses.diff() <= 0).all())
        few = spectra.losses(layer, torch.tensor([1, 5, 7]))
        assert float(few[2]) > 1e-3
        assert float(few[3]) == 0.0


def test_a_norm_scales_the_outputs() -> None:
    model, data = planted_cnn(), images()
    spectra = spectra_of(model, data)
    layer = next(layer for layer in spectra.layers if layer.name == "3")
    normed = model[:5](data)
    values = normed.movedim(1, -1).flatten(0, -2).double()
    kept = torch.arange(10)
    got = spectra.covariance(layer, kept)
    expected = torch.cov(values.T, correction=0)[:10, :10]
    sign = torch.sign(model[4].weight[:10].double())
    torch.testing.assert_close(got * torch.outer(sign, sign), expected, atol=1e-4, rtol=1e-4)


class Residual(nn.Module):
    """A branch with small outputs beside a large skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.branch, self.last = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        h = 10 * self.first(x)
        return self.last(torch.relu(h + self.branch(torch.relu(h))))


def test_losses_are_relative_to_the_residual_sum() -> None:
    torch.manual_seed(0)
    model, data = Residual().eval(), rows().float()
    spectra = spectra_of(model, data)
    layer = next(layer for layer in spectra.layers if layer.name == "branch")
    h = 10 * model.first(data)
    branch = model.branch(torch.relu(h))
    share = float((branch.var(0).sum() / (h + branch).var(0).sum()).detach())
    assert abs(float(spectra.losses(layer, torch.arange(16))[0]) - share) < 0.05 * share


def test_one_example_is_cut_in_the_middle() -> None:
    model, data = planted_cnn(), images(1)
    program = capture(model, data)
    layers = factorable_layers(program)
    spectra = measure_spectra(program, layers, [Example((data,))], alone=True)
    assert min(spectra.moments["0"].count) > 0


def test_a_layer_that_is_constant_loses_nothing() -> None:
    model = nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 4)).eval()
    nn.init.zeros_(model[0].weight)
    spectra = spectra_of(model, rows().float())
    assert float(spectra.losses(spectra.layers[0], torch.arange(8)).sum()) == 0.0
