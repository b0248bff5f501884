"""Two factors in the place of a layer, in the refit of a whole network."""

from __future__ import annotations

import pytest
import torch
from tests.lowrank.planted import RANK, images, planted_cnn, planted_mlp, rows
from torch import Tensor, nn

from interpress import find_spaces
from interpress.calibration.row_weights import RowWeights
from interpress.graph.example import Example
from interpress.lowrank.layers import factorable_layers
from interpress.lowrank.spectra import measure_spectra
from interpress.lowrank.start import first_factors
from interpress.refit.refit import RefitResult, refit
from interpress.surgery.cut import Cut
from interpress.surgery.thin_layers import factored_copy
from interpress.surgery.weights import copy_with, shrunk_copy


def _solved(
    model: nn.Module,
    x: Tensor,
    kept: dict[str, Tensor],
    ranks: dict[str, int],
    row_weights: dict[str, RowWeights] | None = None,
) -> tuple[RefitResult, nn.Module, nn.Module]:
    """Return the refit, and the networks with first factors and with refitted ones."""
    spaces = find_spaces(model, x[:4])
    examples = [Example((part,)) for part in x.split(100)]
    spectra = measure_spectra(spaces.program, factorable_layers(spaces.program), examples)
    cut = Cut(spaces, kept)
    smaller = shrunk_copy(cut)
    thin = first_factors(spectra, cut, smaller, ranks)
    start = {name: value for layer in thin.values() for name, value in layer.start.items()}
    begun = factored_copy(
        copy_with(smaller, start),
        {weight.removesuffix(".weight"): layer.factors for weight, layer in thin.items()},
    )
    result = refit(cut, smaller, examples, thin=thin, row_weights=row_weights)
    refitted = factored_copy(
        copy_with(smaller, result.weights),
        {weight.removesuffix(".weight"): factors for weight, factors in result.factors.items()},
    )
    return result, begun, refitted


def _error(model: nn.Module, other: nn.Module, x: Tensor) -> float:
    with torch.no_grad():
        y = model(x)
        return float((other(x) - y).norm() / (y - y.mean(0)).norm())


@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_first_factors_of_the_true_rank_change_nothing(kind: str) -> None:
    model, x, name = (
        (planted_mlp(), rows(), "2") if kind == "linear" else (planted_cnn(), images(), "3")
    )
    _, begun, refitted = _solved(model, x, {}, {name: RANK})
    exact = 1e-9 if kind == "linear" else 1e-4
    assert _error(model, begun, x) < exact
    assert _error(model, refitted, x) < exact


@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_the_refit_lowers_the_error_of_low_ranks(kind: str) -> None:
    model, x, test = (
        (planted_mlp(), rows(800), rows(400, seed=5))
        if kind == "linear"
        else (planted_cnn(), images(300), images(200, seed=5))
    )
    kept = {"0": torch.arange(0, len(next(model.parameters())), 2)}
    ranks = {"2": 5} if kind == "linear" else {"3": 5}
    result, begun, refitted = _solved(model, x, kept, ranks)
    assert _error(model, refitted, test) < 0.7 * _error(model, begun, test)
    ((weight, factors),) = result.factors.items()
    assert factors.rank == 5
    stored = result.weights[weight].flatten(1)
    torch.testing.assert_close(stored, factors.product().to(stored))
    assert int(torch.linalg.matrix_rank(stored.double(), rtol=1e-6)) == 5


def test_layers_that_the_refit_skips_keep_their_first_factors() -> None:
    """In a language model, only layers that add to a normalised stream are refitted."""
    model, x = planted_mlp(), rows()
    result, begun, refitted = _solved(model, x, {}, {"2": 4}, row_weights={})
    assert result.errors == {}
    assert set(result.weights) == {"2.weight", "2.bias"}
    assert torch.equal(refitted(x), begun(x))
    assert 0.01 < _error(model, begun, x) < 1


def test_a_layer_without_bias_or_norm_gets_none() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 20, bias=False), nn.ReLU(), nn.Linear(20, 6, bias=False))
    x = rows(400).float() + 1
    result, begun, refitted = _solved(model.eval(), x, {}, {"0": 8, "2": 3})
    assert set(result.weights) == {"0.weight", "2.weight"}
    assert all(part.bias is None for name in (0, 2) for part in refitted[name])
    assert _error(model, refitted, x) < _error(model, begun, x)
