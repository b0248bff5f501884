"""The ratio of two run times, against a clock that the networks themselves advance."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from interpress.evaluation import latency
from interpress.evaluation.latency import latency_ratio
from interpress.graph.example import Example

X = Example((torch.randn(4, 8),))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Timed(nn.Module):
    """Advances the clock by a cost that may depend on how often it was called."""

    def __init__(self, clock: Clock, cost: Callable[[int], float]) -> None:
        super().__init__()
        self.clock, self.cost, self.calls = clock, cost, 0

    def forward(self, x: Tensor) -> Tensor:
        assert not self.training
        assert not torch.is_grad_enabled()
        self.calls += 1
        self.clock.now += self.cost(self.calls)
        return x


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(latency, "time", clock)
    return clock


@pytest.mark.parametrize("cost", [1e-4, 1e-2, 1.0])
def test_the_ratio_is_that_of_the_costs(clock: Clock, cost: float) -> None:
    small, large = Timed(clock, lambda _: 0.3 * cost), Timed(clock, lambda _: cost)
    assert latency_ratio(small, large, X) == pytest.approx(0.3)
    assert small.calls == large.calls
    assert small.training


def test_fast_networks_are_repeated_and_slow_ones_are_not(clock: Clock) -> None:
    fast, slow = (Timed(clock, lambda _, c=c: c) for c in (1e-3, 1.0))  # type: ignore[misc]
    latency_ratio(fast, fast, X)
    latency_ratio(slow, slow, X)
    assert fast.calls > 10 * slow.calls


def test_a_few_interruptions_do_not_change_the_median(clock: Clock) -> None:
    small = Timed(clock, lambda call: 0.5 if call not in (1, 3, 5) else 50.0)
    assert latency_ratio(small, Timed(clock, lambda _: 1.0), X) == pytest.approx(0.5)


def test_a_real_measurement_is_a_positive_number() -> None:
    ratio = latency_ratio(nn.Linear(8, 8), nn.Linear(8, 8), X)
    assert 0 < ratio < math.inf
