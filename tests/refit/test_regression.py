"""Ridge regression of a layer, aware of the activation behind it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from interpress.graph.activations import Activation
from interpress.refit import regression
from interpress.refit.regression import Regression


def problem(rows: int = 4000) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs (rows, 1, 12), weights (5, 12), and their outputs plus one half."""
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(rows, 1, 12, generator=generator)
    W = torch.randn(5, 12, generator=generator)
    return X, W, X[:, 0] @ W.T + 0.5


def test_the_exact_solution_is_found_from_a_wrong_start() -> None:
    X, W, target = problem()
    task = Regression(
        [X], target, torch.zeros_like(target), scale=None, activation=None, shifts=True
    )
    solution = task.solve(torch.zeros(5, 12), torch.zeros(5))
    assert solution.change is not None
    torch.testing.assert_close(solution.change, W, atol=5e-3, rtol=5e-3)
    torch.testing.assert_close(solution.shift, torch.full((5,), 0.5), atol=5e-3, rtol=5e-3)
    assert solution.after < 1e-4 * solution.before
    assert solution.ridge in regression.RIDGES


def test_pieces_are_joined_and_a_bias_that_cannot_change_stays() -> None:
    X, W, target = problem()
    pieces = list(X.split(900))
    task = Regression(
        pieces, target - 0.5, torch.zeros(1, 5), scale=None, activation=None, shifts=False
    )
    solution = task.solve(torch.zeros(5, 12), None)
    assert solution.change is not None
    torch.testing.assert_close(solution.change, W, atol=5e-3, rtol=5e-3)
    assert not bool(solution.shift.any())


def test_groups_are_solved_one_by_one() -> None:
    generator = torch.Generator().manual_seed(4)
    X = torch.randn(3000, 2, 6, generator=generator)
    W = torch.randn(2, 3, 6, generator=generator)  # (groups, outputs per group, unknowns)
    target = torch.einsum("rgu,gou->rgo", X, W).flatten(1)
    task = Regression([X], target, torch.zeros(1, 6), scale=None, activation=None, shifts=False)
    solution = task.solve(torch.zeros(6, 6), None)
    assert solution.change is not None
    torch.testing.assert_close(solution.change, W.flatten(0, 1), atol=5e-3, rtol=5e-3)


def test_nothing_changes_where_nothing_is_wrong_or_only_noise_is_left() -> None:
    X, W, target = problem()
    task = Regression(
        [X], target, torch.zeros_like(target), scale=None, activation=None, shifts=True
    )
    assert task.solve(W, torch.full((5,), 0.5)).change is None
    noise = torch.randn(60, 5, generator=torch.Generator().manual_seed(3))
    few = Regression(
        [X[:60]],
        target[:60] + 5 * noise,
        torch.zeros(60, 5),
        scale=None,
        activation=None,
        shifts=False,
    )
    solution = few.solve(W, torch.full((5,), 0.5))
    assert solution.after <= solution.before


def test_a_batch_norm_scale_and_an_offset_are_taken_into_account() -> None:
    X, W, outputs = problem()
    scale = torch.tensor([2.0, -1.0, 0.5, 3.0, 1e-9])
    offset = torch.randn(len(X), 5, generator=torch.Generator().manual_seed(2))
    target = scale * outputs + offset
    task = Regression([X], target, offset, scale=scale, activation=None, shifts=True)
    solution = task.solve(torch.zeros(5, 12), None)
    assert solution.change is not None
    torch.testing.assert_close(solution.change[:4], W[:4], atol=1e-2, rtol=1e-2)
    assert bool((solution.change[4] == 0).all())  # an output that is constant does not change


def test_with_relu_the_loss_behind_it_counts() -> None:
    X, _, target = problem()
    narrow = X[..., :7]  # too few inputs for an exact solution
    losses = {}
    relu = Activation("aten.relu", torch.relu, (0.0, math.inf))
    for activation in (None, relu):
        task = Regression(
            [narrow],
            target,
            torch.zeros_like(target),
            scale=None,
            activation=activation,
            shifts=True,
        )
        solution = task.solve(torch.zeros(5, 7), torch.zeros(5))
        assert solution.change is not None
        y = narrow[:, 0] @ solution.change.T + solution.shift
        losses[activation] = float((y.relu() - target.relu()).square().mean())
    assert losses[relu] < 0.97 * losses[None]


def test_a_weighted_row_counts_as_that_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regression, "RIDGES", (1e-3,))
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(400, 1, 6, generator=generator).double() + 1
    target = X[:, 0, :3].relu() + X[:, 0, 3:].square()  # no linear layer gives that
    counts = torch.randint(1, 5, (400,), generator=generator)

    def solved(rows: Tensor, weights: Tensor | None) -> Tensor:
        task = Regression(
            [X[rows]], target[rows], torch.zeros(1, 3), scale=None, activation=None, shifts=True,
            weights=weights,
        )  # fmt: skip
        solution = task.solve(torch.zeros(3, 6).double(), torch.zeros(3).double())
        assert solution.change is not None
        return torch.cat([solution.change.flatten(), solution.shift])

    each = torch.arange(400)
    weighted = solved(each, counts)
    torch.testing.assert_close(weighted, solved(each.repeat_interleave(counts), None))
    assert float((weighted - solved(each, None)).abs().max()) > 1e-2
