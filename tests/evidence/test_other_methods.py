"""The methods that interpress is compared with: low rank and Torch-Pruning."""

from __future__ import annotations

import copy

import pytest
import torch
from benchmarks import lowrank, peers
from torch import nn

from interpress import demo


@pytest.mark.parametrize("kind", lowrank.KINDS)
def test_a_layer_of_full_rank_equals_the_original(kind: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(72, 5))
    images = torch.randn(40, 3, 5, 5)
    layers = lowrank.factored_layers(model, images, kind)
    assert [layer.positions for layer in layers] == [9, 1]
    for layer, inputs in zip(layers, (images, model[:3](images)), strict=True):
        thin = lowrank.thin_layers(layer, len(layer.energies))
        assert torch.allclose(thin(inputs), layer.module(inputs), atol=1e-4)


@pytest.mark.parametrize("kind", lowrank.KINDS)
def test_low_rank_meets_its_budget_and_leaves_the_network_unchanged(kind: str) -> None:
    model, digits = demo.network(), demo.load_digits()
    before = copy.deepcopy(model.state_dict())
    smaller = lowrank.factorize(model, digits.calibration, kind, 0.6)
    share = demo.flops(smaller, digits.calibration[:1]) / demo.flops(model, digits.calibration[:1])
    assert 0.5 < share <= 0.6
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_pca_is_exact_at_the_rank_of_the_outputs() -> None:
    """Outputs in a two-dimensional subspace need rank two, although the weights have rank six."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8))
    images = torch.randn(200, 2) @ torch.randn(2, 6)
    (layer,) = lowrank.factored_layers(model, images, "pca")
    assert torch.allclose(lowrank.thin_layers(layer, 2)(images), model(images), atol=1e-4)


def test_torch_pruning_meets_the_budget() -> None:
    pytest.importorskip("torch_pruning")
    model, example = demo.network(), demo.load_digits().calibration[:2]
    smaller = peers.torch_pruning(model, example, "L1", 0.5)
    assert 0.45 < demo.flops(smaller, example) / demo.flops(model, example) <= 0.5


def test_recalibrated_batch_norms_have_the_mean_of_the_images() -> None:
    model, images = demo.network(), demo.load_digits().calibration
    recalibrated = peers.recalibrate_batch_norms(model, images, batch=300)
    with torch.no_grad():
        inputs = recalibrated.features[0](images)  # type: ignore[index,union-attr]
    norm = recalibrated.features[1]  # type: ignore[index,union-attr]
    assert torch.allclose(norm.running_mean, inputs.mean((0, 2, 3)), atol=1e-5)
