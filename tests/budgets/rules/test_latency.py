"""`latency=`: the largest network that is fast enough, measured without the refit."""

from __future__ import annotations

import pytest
from torch import nn

from interpress import Analysis, ArgumentError, Method
from interpress.budgets import search
from interpress.graph.example import Example


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def fraction_of_weights(
    smaller: nn.Module, original: nn.Module, example: Example, *, rounds: int | None
) -> float:
    """Return a ratio in place of the measured one, which depends on the load of the machine."""
    assert example.tensors()[0].shape == (100, 1, 8, 8)  # one calibration batch
    return parameters(smaller) / parameters(original)


def test_the_largest_network_within_the_budget_is_returned(
    demo_analysis: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "latency_ratio", fraction_of_weights)
    result = demo_analysis.compress(latency=0.6)
    assert result.latency is not None
    assert 0.55 < result.latency <= 0.6
    assert result.latency == parameters(result.model) / parameters(result.original)
    assert result.network.refit is not None  # the network within the budget is refitted
    assert "measured run time, relative" in result.summary()
    plain = demo_analysis.compress(latency=0.6, method=Method(refit=False))
    assert plain.widths == result.widths
    assert plain.network.refit is None


def test_a_run_time_that_cannot_be_reached_says_how_near_it_came(
    demo_analysis: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "latency_ratio", lambda *_, **__: 0.8)
    with pytest.raises(
        ArgumentError, match=r"latency=0.5 cannot be reached.*0\.8;.*larger batches"
    ):
        demo_analysis.compress(latency=0.5)


def test_a_measurement_within_the_budget_is_made_again(
    demo_analysis: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several noisy measurements the lowest is too low, so it is not the one that decides."""
    asked: list[int | None] = []

    def lucky_at_first(
        smaller: nn.Module, original: nn.Module, example: Example, *, rounds: int | None
    ) -> float:
        asked.append(rounds)
        share = parameters(smaller) / parameters(original)
        return share if rounds is None else 0.5 * share

    monkeypatch.setattr(search, "latency_ratio", lucky_at_first)
    result = demo_analysis.compress(latency=0.6, method=Method(refit=False))
    assert result.latency == parameters(result.model) / parameters(result.original)
    assert 0.55 < result.latency <= 0.6
    assert None in asked
