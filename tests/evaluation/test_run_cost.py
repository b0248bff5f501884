"""Run time and memory of one run."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from interpress.evaluation.run_cost import peak_activations, run_cost
from interpress.graph.example import Example

X = Example((torch.randn(10, 6),))


def test_the_peak_by_hand() -> None:
    linear = nn.Sequential(nn.Linear(6, 100), nn.Linear(100, 4))
    assert peak_activations(linear, X) == 4 * 10 * (100 + 4)
    # the first result is freed before the last one is made
    longer = nn.Sequential(nn.Linear(6, 100), nn.Linear(100, 20), nn.Linear(20, 100))
    assert peak_activations(longer, X) == 4 * 10 * (100 + 20)


def test_what_stays_alive_counts_and_views_do_not() -> None:
    class Kept(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            first = x * 2
            second = first + 1
            return (first.view(-1) * second.flatten()).sum()

    assert peak_activations(Kept(), X) == 4 * 3 * 60 + 4


def test_writing_in_place_takes_no_memory() -> None:
    model = nn.Sequential(nn.Linear(6, 100), nn.ReLU(inplace=True))
    assert peak_activations(model, X) == 4 * 10 * 100


def test_a_cost_has_both_networks_and_leaves_them_as_they_were() -> None:
    large, small = nn.Linear(6, 400).train(), nn.Linear(6, 100).train()
    cost = run_cost(small, large, X)
    assert cost.activation_bytes == (4 * 10 * 400, 4 * 10 * 100)
    assert min(cost.seconds) > 0
    assert 0 < cost.quartiles[0] <= cost.ratio <= cost.quartiles[1]
    assert (cost.examples, cost.device) == (10, "cpu")
    assert large.training


def test_without_a_peak_there_is_still_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> int:
        raise RuntimeError("an operator that cannot be watched")

    monkeypatch.setattr("interpress.evaluation.run_cost.peak_activations", fails)
    cost = run_cost(nn.Linear(6, 3), nn.Linear(6, 4), X)
    assert cost.activation_bytes is None
    assert min(cost.seconds) > 0
