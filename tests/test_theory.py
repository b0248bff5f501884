"""The paper's lemma and theorem on real networks and against their formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from interpress import ArgumentError, demo
from interpress.theory import HiddenLayer, hidden_layer, risks


@pytest.fixture(scope="module")
def trained() -> tuple[nn.Module, Tensor]:
    """A network with one hidden layer of 24 neurons, and its training images."""
    images, labels = demo.load_digits().test
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.2)
    for _ in range(5):
        for batch in torch.randperm(len(images)).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    return model, images


def test_the_lemma_holds_on_a_trained_network(trained: tuple[nn.Module, Tensor]) -> None:
    model, images = trained
    layer = hidden_layer(model, images[:400])
    assert layer.activations.shape == (400, 24)
    assert layer.inputs == 64
    test = hidden_layer(model, images[400:]).activations
    results = risks(layer, [6, 12, 24], test=test)
    assert all(risk.holds for risk in results)
    assert all(risk.T_norm >= 1 - 1e-12 for risk in results)
    assert all(risk.test is not None for risk in results)
    assert results[0].empirical > results[1].empirical > results[2].empirical
    assert results[2].empirical < 1e-20
    Z, U = layer.activations, layer.outputs
    expected = float(U.square().sum() * torch.cat([Z, test]).square().sum(1).max())
    largest = results[0].M
    assert largest == pytest.approx(expected)


def test_the_bound_is_infinite_below_the_pseudo_dimension(
    trained: tuple[nn.Module, Tensor],
) -> None:
    model, images = trained
    (risk,) = risks(hidden_layer(model, images), [12])
    assert risk.generalization == math.inf
    assert risk.enough > risk.p > risk.examples


def test_the_bound_is_the_formula_of_the_paper() -> None:
    torch.manual_seed(0)
    Z = torch.randn(5000, 4, dtype=torch.float64)
    layer = HiddenLayer(Z, torch.randn(4, 1, dtype=torch.float64), 2)
    (risk,) = risks(layer, [3], delta=0.1, zeta=0.5)
    p = 0.5 * 8 * math.log(8)
    bracket = math.sqrt(2 * p * math.log(math.e * 5000 / p)) + math.sqrt(math.log(10) / 2)
    expected = risk.eps**2 * risk.M + risk.M * (1 + risk.T_norm) ** 2 / math.sqrt(5000) * bracket
    assert risk.generalization == pytest.approx(expected)
    at_enough = (1 + risk.T_norm) ** 2 * math.sqrt(
        2 * p * math.log(math.e * risk.enough / p) / risk.enough
    )
    assert 0.97 < at_enough <= 1


def test_theory_needs_one_hidden_layer_and_valid_constants() -> None:
    with pytest.raises(ArgumentError, match=r"this DigitNet has 1 nn\.Linear"):
        hidden_layer(demo.network(), torch.zeros(2, 1, 8, 8))
    with pytest.raises(ArgumentError, match="0 < delta < 1"):
        risks(HiddenLayer(torch.eye(3).double(), torch.eye(3).double(), 2), [1], delta=2)
