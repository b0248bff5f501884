"""Costs at any widths follow from the dims of operators, without building a network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from interpress import ArgumentError, find_spaces


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2), nn.ReLU(), nn.Linear(2, 4))


def test_costs_by_hand() -> None:
    spaces = find_spaces(mlp(), torch.randn(3, 4))
    assert spaces.cost().flops == 2 * 3 * (32 + 16 + 8)
    assert spaces.cost({"0": 3, "2": 1}).flops == 2 * 3 * (12 + 3 + 4)
    assert spaces.cost({"0": 3}).parameters == 4 * 3 + 3 + 3 * 2 + 2 + 2 * 4 + 4
    assert spaces.cost({"0": 3}).activation_bytes == 4 * 3 * (3 + 3 + 2 + 2 + 4)


def test_shares_of_flops() -> None:
    spaces = find_spaces(mlp(), torch.randn(3, 4))
    assert spaces.cost.share("0") == pytest.approx(48 / 56)
    assert spaces.cost.share("2") == pytest.approx(24 / 56)
    assert spaces.cost.shrinkable_share() == 1.0
    excluded = find_spaces(mlp(), torch.randn(3, 4), exclude=["4"])
    assert excluded.cost.shrinkable_share() == pytest.approx(48 / 56)


def test_bad_widths() -> None:
    spaces = find_spaces(mlp(), torch.randn(3, 4))
    with pytest.raises(ArgumentError, match="width 9 is not one of 1 to 8 in steps of 1"):
        spaces.cost({"0": 9})
    with pytest.raises(ArgumentError, match=r"width 3 is not one of 4 to 4 .* it is an output"):
        spaces.cost({"4": 3})
    with pytest.raises(ArgumentError, match=r"no space 'nope'; the spaces are 0, 2, 4"):
        spaces.cost({"nope": 1})


def test_a_doubled_example_is_counted_once() -> None:
    model = mlp()
    single, double = find_spaces(model, torch.randn(1, 4)), find_spaces(model, torch.randn(2, 4))
    assert single.program.doubled
    assert 2 * single.cost().flops == double.cost().flops
    assert 2 * single.cost().activation_bytes == double.cost().activation_bytes


def test_memory_of_a_run() -> None:
    spaces = find_spaces(mlp(), torch.randn(3, 4))
    assert spaces.cost.largest_activation() == 4 * 3 * 8
    assert spaces.cost.peak_bytes() == 4 * 3 * (8 + 8)
