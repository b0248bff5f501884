"""What every selection promises, on networks with residual streams, heads and balanced cells."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
import torch
from tests.zoo.members import build

import interpress
from interpress.progress import display
from interpress.selection.orders import Orders, order_all
from interpress.selection.registry import SELECTIONS

NETWORKS = ("preact_resnet", "depth_multiplier", "vit", "einsum_attention", "shufflenet_v1")


@cache
def analysis_of(network: str) -> interpress.Analysis:
    torch.manual_seed(0)
    model, example = build(network)
    return interpress.analyze(model, [example])


def orders_of(network: str, selection: str) -> Orders:
    with display(False) as bars:
        return order_all(analysis_of(network).study, selection, bars)


def test_the_networks_have_heads_and_balanced_cells() -> None:
    spaces = [space for name in NETWORKS for space in analysis_of(name).spaces.shrinkable]
    assert any(space.heads for space in spaces)
    assert any(space.step > 1 for space in spaces)
    assert any(len(space.producers) > 1 for space in spaces)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_selection_orders_the_units_of_every_space(selection: str, network: str) -> None:
    orders = orders_of(network, selection)
    again = orders_of(network, selection)
    assert orders.selection == selection
    assert orders.keys() == orders.profiles.keys() == again.keys() != set()
    for name, order in orders.items():
        space = orders.profiles[name].space
        assert sorted(order.units.tolist()) == list(range(space.size))  # a permutation
        assert torch.equal(order.units, again[name].units)
        for estimate in (order.proxy, order.errors):
            assert estimate.shape == (space.size + 1,)
            assert bool(estimate.isfinite().all())
            assert bool((estimate >= 0).all())
            assert float(estimate[-1]) == 0.0  # nothing is lost if all units are kept


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_kept_units_are_nested_and_equally_many_of_every_cell(selection: str, network: str) -> None:
    orders = orders_of(network, selection)
    assert len(orders) > 0
    for name, order in orders.items():
        space = orders.profiles[name].space
        widths = range(space.step, space.size + 1, space.step)
        kept = [order.kept(width) for width in widths]
        for narrow, wide in itertools.pairwise(kept):
            assert set(narrow.tolist()) < set(wide.tolist())
        for width, units in zip(widths, kept, strict=True):
            assert torch.equal(units, units.unique())  # ascending
            per_cell = torch.bincount(space.cells[units], minlength=len(space.cells.unique()))
            share = torch.bincount(space.cells) * width // space.size
            assert torch.equal(per_cell, share)
