"""Main directions of patches, instead of all inputs of a layer with a large kernel."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interpress.refit import regression
from interpress.refit.directions import Directions
from interpress.refit.regression import Regression


def patches(rows: int = 3000) -> Tensor:
    """Return (rows, 4 * 9) patches of four channels, each of which varies in two directions."""
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(4, 2, 9, generator=generator)
    return torch.einsum(
        "rcp,cpk->rck", torch.randn(rows, 4, 2, generator=generator), mixing
    ).flatten(1)


def test_chosen_directions_hold_the_most_energy() -> None:
    X = torch.randn(200, 12, generator=torch.Generator().manual_seed(1))
    X[:, :4] *= 10
    directions = Directions.largest(X, 4, 5)
    by_channel = X.double().reshape(-1, 3, 4)
    energies = torch.cat([torch.linalg.svdvals(by_channel[:, i]).square() for i in range(3)])
    expected = energies.sort(descending=True).values[:5].sum()
    kept = directions.projected(X).double().square().sum()
    assert float(kept) == pytest.approx(float(expected), rel=1e-5)


def test_a_lifted_change_acts_on_inputs_as_the_change_on_projected_inputs() -> None:
    X = torch.randn(50, 12, generator=torch.Generator().manual_seed(2))
    directions = Directions.largest(X, 3, 7)
    change = torch.randn(7, 5, generator=torch.Generator().manual_seed(3))
    lifted = directions.lifted(change)
    assert lifted.shape == (12, 5)
    torch.testing.assert_close(X @ lifted, directions.projected(X) @ change)


def test_the_regression_on_all_directions_that_vary_is_the_whole_regression(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X = patches()
    W = torch.randn(6, 36, generator=torch.Generator().manual_seed(4))
    target = X @ W.T + 0.5

    def outputs(kernel: int) -> Tensor:
        task = Regression(
            [X[:, None]], target, torch.zeros(1, 6),
            scale=None, activation=None, shifts=True, kernel=kernel,
        )  # fmt: skip
        solution = task.solve(torch.zeros(6, 36), torch.zeros(6))
        assert solution.change is not None
        return X @ solution.change.T + solution.shift

    whole = outputs(1)
    monkeypatch.setattr(regression, "LARGE", 8)
    torch.testing.assert_close(outputs(9), whole, atol=0.05, rtol=0.05)
    torch.testing.assert_close(outputs(9), target, atol=0.05, rtol=0.05)
