"""`thinet`: the dropped channels contribute least in sum."""

import pytest
import torch

from interpress.selection.rules.thinet import _greedy


def test_every_drop_is_the_one_that_lets_the_sum_grow_least() -> None:
    torch.manual_seed(0)
    parts = torch.randn(200, 6, dtype=torch.float64) * torch.arange(1, 7)
    parts[:, 5] = -parts[:, 4]  # large, but they cancel
    ranking = _greedy(parts.T @ parts)
    assert sorted(ranking.units.tolist()) == list(range(6))
    dropped: list[int] = []
    for unit in ranking.units.tolist()[::-1]:
        sums = {
            other: float(parts[:, [*dropped, other]].sum(1).square().sum())
            for other in range(6) if other not in dropped
        }  # fmt: skip
        assert sums[unit] == pytest.approx(min(sums.values()))
        dropped.append(unit)
