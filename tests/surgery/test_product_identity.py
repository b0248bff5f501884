"""The product identity: two thin layers do what one layer of that rank would do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from interpress import find_spaces
from interpress.linalg.low_rank import Factors
from interpress.spaces.spaces import Spaces
from interpress.surgery.product_identity import prove_products
from interpress.surgery.thin_layers import factored_copy


@pytest.fixture
def network() -> tuple[nn.Sequential, Spaces, dict[str, Factors]]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 12, 3), nn.BatchNorm2d(12), nn.ReLU(), nn.Flatten(), nn.Linear(12 * 9, 4)
    ).eval()
    factors = {"0": Factors(torch.randn(12, 5), torch.randn(5, 18))}
    return model, find_spaces(model, torch.randn(3, 2, 5, 5)), factors


def test_it_holds(network: tuple[nn.Sequential, Spaces, dict[str, Factors]]) -> None:
    model, spaces, factors = network
    proof = prove_products(spaces, model, factored_copy(model, factors), factors)
    assert proof
    assert proof.difference < 1e-12
    assert proof.tolerance == 1e-9


@pytest.mark.parametrize("part", [0, 1])
def test_a_changed_weight_is_noticed(
    network: tuple[nn.Sequential, Spaces, dict[str, Factors]], part: int
) -> None:
    model, spaces, factors = network
    thin = factored_copy(model, factors)
    with torch.no_grad():
        thin[0][part].weight.view(-1)[3] += 1e-4
    assert not prove_products(spaces, model, thin, factors)


def test_a_changed_bias_or_stride_is_noticed(
    network: tuple[nn.Sequential, Spaces, dict[str, Factors]],
) -> None:
    model, spaces, factors = network
    thin = factored_copy(model, factors)
    with torch.no_grad():
        thin[0][1].bias[2] += 1e-3
    assert not prove_products(spaces, model, thin, factors)


def test_the_networks_are_left_as_they_were(
    network: tuple[nn.Sequential, Spaces, dict[str, Factors]],
) -> None:
    model, spaces, factors = network
    thin = factored_copy(model, factors)
    before = [p.clone() for p in [*model.parameters(), *thin.parameters()]]
    prove_products(spaces, model, thin, factors)
    after = [*model.parameters(), *thin.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
