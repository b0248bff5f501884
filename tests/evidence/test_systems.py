"""The systems of the paper that are not rankings of channels by calibration alone."""

from __future__ import annotations

import copy

import pytest
import torch
from benchmarks import coresets, lowrank, published, snip, subspace_layers, subspaces, thresholding
from benchmarks.experiments import composition
from torch import Tensor, nn

import interpress
from interpress import Method, demo

LAYERS = {
    "linear": (nn.Linear(24, 10), torch.randn(7, 24)),
    "convolution": (nn.Conv2d(8, 12, 3, 2, 1, dilation=2), torch.randn(3, 8, 11, 9)),
    "no bias": (nn.Conv2d(4, 6, (1, 3), bias=False), torch.randn(2, 4, 5, 6)),
}


def svd_layers(module: nn.Conv2d | nn.Linear, rank: int) -> nn.Module:
    """Return the two layers of `kind="svd"` at a rank."""
    U, S, V = torch.linalg.svd(module.weight.detach().flatten(1).double(), full_matrices=False)
    layer = lowrank.FactoredLayer("", module, U * S, V, S.square(), 1)
    return lowrank.thin_layers(layer, rank)


@pytest.mark.parametrize("kind", LAYERS)
@torch.no_grad()
def test_alds_with_one_slice_equals_the_svd(kind: str) -> None:
    module, inputs = LAYERS[kind]
    thin = subspace_layers.sliced_layers(module, 1, 3)
    torch.testing.assert_close(thin(inputs), svd_layers(module, 3)(inputs), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", LAYERS)
@torch.no_grad()
def test_messi_with_one_cluster_equals_the_svd(kind: str) -> None:
    module, inputs = LAYERS[kind]
    thin = subspace_layers.clustered_layers(module, 1, 3)
    torch.testing.assert_close(thin(inputs), svd_layers(module, 3)(inputs), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", LAYERS)
@torch.no_grad()
def test_layers_of_full_rank_equal_the_original(kind: str) -> None:
    module, inputs = LAYERS[kind]
    for thin in (
        subspace_layers.sliced_layers(module, 4, 12),
        subspace_layers.clustered_layers(module, 3, 24),
    ):
        torch.testing.assert_close(thin(inputs), module(inputs), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("slices", [1, 2, 4])
def test_the_bound_and_the_cost_of_alds_are_those_of_its_layers(slices: int) -> None:
    torch.manual_seed(0)
    module = nn.Conv2d(8, 12, 3, padding=1, bias=False)
    layer = subspaces.SlicedLayer(subspaces.Layer("", module, 25))
    thin = subspace_layers.sliced_layers(module, slices, 2)
    example = torch.randn(1, 8, 5, 5)
    assert demo.flops(thin, example) == 2 * layer.cost(slices, 2)
    W = module.weight.detach().flatten(1)
    first, second = (part.weight.detach().flatten(1) for part in thin)  # type: ignore[operator]
    blocks = first.reshape(slices, 2, -1)  # every slice reads its own inputs
    approximation = second @ torch.block_diag(*blocks)
    error = torch.linalg.matrix_norm(W - approximation, 2) / torch.linalg.matrix_norm(W, 2)
    assert 0.5 * layer.bound(slices, 2) < float(error) <= layer.bound(slices, 2) + 1e-6


def test_alds_chooses_slices_where_they_are_exact() -> None:
    """Each half of the inputs needs rank four, all of them together rank eight."""
    torch.manual_seed(0)
    module = nn.Linear(64, 64, bias=False)
    halves = [torch.randn(64, 4) @ torch.randn(4, 32) for _ in range(2)]
    with torch.no_grad():
        module.weight.copy_(torch.cat(halves, 1))
    layer = subspaces.SlicedLayer(subspaces.Layer("", module, 1))
    exact = {k: layer.rank_within(k, 1e-5) for k in (1, 2)}
    assert exact == {1: 8, 2: 4}
    assert layer.cost(2, 4) < 800 < layer.cost(1, 8)
    assert subspaces.choose_slices([layer], budget=800) == [(2, 4)]


def test_messi_finds_planted_subspaces() -> None:
    torch.manual_seed(0)
    bases = torch.randn(2, 3, 20, dtype=torch.float64)
    planted = torch.randint(2, (40,))
    W = torch.stack([torch.randn(3, dtype=torch.float64) @ bases[c] for c in planted])
    found = subspace_layers.cluster_rows(W, 2, 3)
    assert torch.equal(found == found[0], planted == planted[0])
    assert int(torch.linalg.matrix_rank(W)) == 6  # so one subspace of dimension 3 is not enough


@pytest.mark.parametrize("kind", subspaces.KINDS)
def test_subspaces_meet_their_budget_and_leave_the_network_unchanged(kind: str) -> None:
    model, digits = demo.network(), demo.load_digits()
    before = copy.deepcopy(model.state_dict())
    smaller = composition.factorize(model, digits.calibration, kind, 0.6)
    share = demo.flops(smaller, digits.calibration[:1]) / demo.flops(model, digits.calibration[:1])
    assert 0.5 < share <= 0.6
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    with pytest.raises(RuntimeError, match="the budget is too small"):
        composition.factorize(model, digits.calibration, kind, 0.01)


@pytest.fixture
def mlp() -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3)), torch.randn(300, 6)


def test_the_score_of_snip_is_a_finite_difference(mlp: tuple[nn.Sequential, Tensor]) -> None:
    model, images = mlp[0].double(), mlp[1].double()
    labels = model(images).argmax(1)
    products = snip.gated_gradients(model, images)

    def loss(channel: int, gate: float) -> float:
        gated = copy.deepcopy(model)
        with torch.no_grad():
            gated[0].weight[channel] *= gate
            return float(nn.functional.cross_entropy(gated(images), labels))

    for channel in range(10):
        difference = (loss(channel, 1 + 1e-4) - loss(channel, 1 - 1e-4)) / 2e-4
        assert float(products["0.weight"][channel].sum()) == pytest.approx(difference, abs=1e-8)


def test_snip_drops_channels_without_influence(mlp: tuple[nn.Sequential, Tensor]) -> None:
    model, images = mlp
    with torch.no_grad():
        model[2].weight[:, [2, 5]] = 0
    analysis = interpress.analyze(model, images, progress=False)
    snip.prepare(analysis, images)
    method = Method(selection="snip", allocation="constant", refit=False, correct=False)
    smaller = analysis.compress(width=0.8, method=method, progress=False).model
    torch.testing.assert_close(smaller(images), model(images))


def test_factors_of_a_coreset_are_one_on_average() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.tensor([0.4, 0.3, 0.2, 0.07, 0.03], dtype=torch.float64)
    factors = torch.stack([
        coresets.weights_of(torch.multinomial(p, 4, replacement=True, generator=generator), p)
        for _ in range(20_000)
    ])  # fmt: skip
    deviation = factors.std(0) / len(factors) ** 0.5
    assert bool(((factors.mean(0) - 1).abs() < 4 * deviation).all())
    assert bool((factors.std(0) > 0.1).all())


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_coreset_has_as_many_channels_as_asked_for(count: int) -> None:
    p = torch.tensor([0.9, 0.1 - 2e-12, 1e-12, 1e-12, 0], dtype=torch.float64)
    factors = coresets.draw(p, count, torch.Generator().manual_seed(0))
    assert int((factors > 0).sum()) == count


def test_a_coreset_reweights_the_consumer(mlp: tuple[nn.Sequential, Tensor]) -> None:
    model, images = mlp
    analysis = interpress.analyze(model, images, progress=False)
    smaller = coresets.reweighted(analysis, 0.5)
    weight = smaller.get_submodule("2").weight.detach()
    assert isinstance(weight, Tensor)
    assert weight.shape[1] == 5
    ratios = []
    for column in weight.T:
        scales = column / model[2].weight.detach().T  # (channels, outputs)
        ratios.append(min(float(row.std() / row.mean().abs()) for row in scales))
    assert max(ratios) < 1e-4  # every column is a multiple of one column of the original


@pytest.mark.parametrize("count", [1, 50, 89])
def test_thres_keeps_exactly_the_largest_weights(
    count: int, mlp: tuple[nn.Sequential, Tensor]
) -> None:
    model, images = mlp
    assert thresholding.nonzeros(model) == 90
    sparse = thresholding.threshold(model, count)
    assert thresholding.nonzeros(sparse) == count
    assert demo.flops(sparse, images[:1]) == demo.flops(model, images[:1])
    kept = torch.cat([w[w != 0].abs() for w in thresholding.dense_weights(sparse)])
    sizes = torch.cat([w.abs().reshape(-1) for w in thresholding.dense_weights(model)])
    assert torch.equal(kept.sort().values, sizes.sort().values[-count:])
    assert thresholding.nonzeros(model) == 90


def test_published_figures_name_their_training() -> None:
    text = published.markdown()
    assert "| VGG-16, ImageNet | AMC | 48 | 70.49 | 0.65 | 76.03 | 120 |" in text
    assert "| VGG-16, CIFAR-10 | Polar | 54 | 93.92 | 0.04 | not given | 200 |" in text
