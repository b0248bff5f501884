"""The ratio of two run times, against a clock that the networks themselves advance."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from torch import Tensor, nn

from interpress.evaluation import latency
from interpress.evaluation.latency import latency_ratio, median_and_quartiles, run_times
from interpress.graph.example import Example

X = Example((torch.randn(4, 8),))


class Clock:
    """A clock that networks advance; it also counts their calls, whose attributes are restored."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: Counter[float] = Counter()

    def perf_counter(self) -> float:
        return self.now


class Timed(nn.Module):
    """Advances the clock by its cost; at some of its calls it is interrupted."""

    def __init__(self, clock: Clock, cost: float, interrupted: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.clock, self.cost, self.interrupted = clock, cost, interrupted

    def forward(self, x: Tensor) -> Tensor:
        assert not self.training
        assert not torch.is_grad_enabled()
        self.clock.calls[self.cost] += 1
        call = self.clock.calls[self.cost]
        self.clock.now += 100 * self.cost if call in self.interrupted else self.cost
        return x


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(latency, "time", clock)
    return clock


@pytest.mark.parametrize("cost", [1e-4, 1e-2, 1.0])
def test_the_ratio_is_that_of_the_costs(clock: Clock, cost: float) -> None:
    small, large = Timed(clock, 0.3 * cost), Timed(clock, cost)
    assert latency_ratio(small, large, X) == pytest.approx(0.3)
    assert clock.calls[0.3 * cost] == clock.calls[cost] > 5
    assert small.training


def test_fast_networks_are_repeated_and_slow_ones_are_not(clock: Clock) -> None:
    for cost in (1e-3, 1.0):
        latency_ratio(Timed(clock, cost), Timed(clock, cost), X)
    assert clock.calls[1e-3] > 10 * clock.calls[1.0] > 0


def test_a_few_interruptions_do_not_change_the_median(clock: Clock) -> None:
    small = Timed(clock, 0.5, interrupted=(2, 4, 6))
    assert latency_ratio(small, Timed(clock, 1.0), X) == pytest.approx(0.5)
    assert clock.calls[0.5] > 6


def test_a_real_measurement_is_a_positive_number() -> None:
    ratio = latency_ratio(nn.Linear(8, 8), nn.Linear(8, 8), X)
    assert 0 < ratio < math.inf


def test_a_report_has_the_median_of_pairs_and_their_quartiles(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency, "_ENOUGH", 2.0)
    small, large = Timed(clock, 0.03, interrupted=(3,)), Timed(clock, 0.1, interrupted=(2, 4))
    times = run_times(small, large, X)
    assert times.seconds == (pytest.approx(0.1), pytest.approx(0.03))
    assert times.ratio == pytest.approx(0.3)
    assert times.quartiles == (pytest.approx(0.3), pytest.approx(0.3))
    assert times.rounds == 15  # of 0.13 s each
    assert run_times(Timed(clock, 1e-4), Timed(clock, 1e-3), X).rounds == 90
    assert run_times(Timed(clock, 10.0), Timed(clock, 20.0), X).rounds == 3


def test_the_quartiles_are_those_of_the_ratios() -> None:
    assert median_and_quartiles([0.5, 0.9, 1.0, 1.1, 3.0]) == (1.0, (0.9, 1.1))
    assert median_and_quartiles([0.7]) == (0.7, (0.7, 0.7))


def test_each_network_is_first_in_half_of_the_pairs(clock: Clock) -> None:
    order: list[float] = []

    class Noted(Timed):
        def forward(self, x: Tensor) -> Tensor:
            order.append(self.cost)
            return super().forward(x)

    latency_ratio(Noted(clock, 1.0), Noted(clock, 2.0), X, rounds=4)
    assert order[2:] == [2.0, 1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0]
