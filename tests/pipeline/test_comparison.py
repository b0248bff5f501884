"""The comparison of allocations, as a user sees it."""

from __future__ import annotations

import torch
from torch import nn

import interpress
from interpress import Analysis, Method, Result
from interpress.method import CANDIDATES


def text_of(result: Result) -> str:
    return " ".join(result.summary().split())


def test_preserve_says_which_allocation_is_best_and_by_how_much(analysis: Analysis) -> None:
    result = analysis.compress(flops=0.2, progress=False)
    comparison = result.network.comparison
    assert comparison is not None
    assert len(comparison.losses) > 1
    assert set(comparison.losses) <= set(CANDIDATES)
    assert result.allocation == comparison.best
    assert f"Allocation: {comparison.described('mean √KL')}." in text_of(result)
    for name, loss in comparison.losses.items():
        assert name in str(comparison)
        assert f"{loss:.3g}" in str(comparison)
    alone = analysis.compress(flops=0.2, method=Method(allocation=comparison.best), progress=False)
    assert alone.widths == result.widths


def test_the_losses_are_those_of_the_networks_before_the_refit(analysis: Analysis) -> None:
    comparison = analysis.compress(flops=0.2, progress=False).network.comparison
    assert comparison is not None
    losses: dict[str, float | None] = {}
    for name in comparison.losses:
        method = Method(allocation=name, refit=False)
        agreement = analysis.compress(flops=0.2, method=method, progress=False).agreement
        assert agreement is not None
        losses[name] = agreement.distance
    assert losses == {name: comparison.losses[name] for name in losses}


def test_a_single_allocation_is_compared_with_nothing(analysis: Analysis) -> None:
    result = analysis.compress(flops=0.4, method=Method(allocation="measured"), progress=False)
    assert result.network.comparison is None
    assert result.allocation == "measured"
    assert "Allocation:" not in text_of(result)
    assert not any("Allocation" in note for note in result.notes)


def test_a_single_space_leaves_nothing_to_compare() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 4))
    result = interpress.compress(model, torch.randn(200, 6), flops=0.5, progress=False)
    assert result.allocation in CANDIDATES
    assert "loss 0 before" not in text_of(result)  # no loss was measured
    assert "()" not in text_of(result)
