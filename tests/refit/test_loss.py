"""The loss behind an activation, and the step that lowers it."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from interpress.graph.activations import Activation
from interpress.refit.loss import ActivationLoss
from interpress.refit.regression import Regression

MONOTONE = [
    Activation("relu", torch.relu, (0.0, math.inf)),
    Activation("hardtanh", lambda x: F.hardtanh(x, 0.0, 6.0), (0.0, 6.0)),
    Activation("hardsigmoid", F.hardsigmoid, (-3.0, 3.0)),
    Activation("sigmoid", torch.sigmoid),
]
OTHERS = [
    Activation("silu", F.silu),
    Activation("gelu", F.gelu),
    Activation("hardswish", F.hardswish),
]
ALL = slice(None)


def pairs() -> tuple[Tensor, Tensor]:
    """Return values `z` and targets (1, rows, 1): every pair of a grid."""
    grid = torch.linspace(-8, 8, 161, dtype=torch.float64)
    z, target = torch.meshgrid(grid, grid, indexing="ij")
    return z.reshape(1, -1, 1), target.reshape(1, -1, 1)


def name(activation: Activation | None) -> str:
    return "none" if activation is None else activation.name


@pytest.mark.parametrize("activation", MONOTONE, ids=name)
def test_a_step_raises_no_single_error(activation: Activation) -> None:
    z, target = pairs()
    step = ActivationLoss(target, activation, None, None).step(z.clone(), ALL)
    goal = activation.apply(target)
    before = (activation.apply(z) - goal).abs()
    for fraction in (0.5, 1.0):
        after = (activation.apply(z + fraction * step) - goal).abs()
        assert bool((after <= before + 1e-12).all())


@pytest.mark.parametrize("activation", [None, *MONOTONE, *OTHERS], ids=name)
def test_a_step_lowers_the_loss(activation: Activation | None) -> None:
    generator = torch.Generator().manual_seed(0)
    for spread in (0.3, 1.0, 4.0):
        z, target = spread * torch.randn(2, 1, 500, 3, generator=generator, dtype=torch.float64)
        loss = ActivationLoss(target, activation, None, None)
        before = loss(z, ALL)
        for _ in range(3):
            z = z + loss.step(z.clone(), ALL)
            assert loss(z, ALL) < before or before < 1e-20
            before = loss(z, ALL)


def test_where_both_are_beyond_a_bound_nothing_has_to_move() -> None:
    loss = ActivationLoss(torch.tensor([[[-2.0], [9.0], [3.0], [-2.0]]]), MONOTONE[1], None, None)
    z = torch.tensor([[[-5.0], [7.0], [8.0], [4.0]]])
    assert loss.step(z, ALL).flatten().tolist() == [0.0, 0.0, -5.0, -4.0]


def test_rows_count_by_their_weight_and_constant_outputs_do_not_count() -> None:
    target, z = torch.zeros(1, 2, 2), torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    weights, alive = torch.tensor([[2.0], [1.0]]), torch.tensor([[[1.0, 0.0]]])
    assert ActivationLoss(target, None, None, None)(z, ALL) == 30.0
    assert ActivationLoss(target, None, None, weights)(z, ALL) == 35.0
    assert ActivationLoss(target, None, alive, weights)(z, ALL) == 11.0
    assert ActivationLoss(target, None, None, weights)(z[:, 1:], slice(1, 2)) == 25.0
    step = ActivationLoss(target, None, alive, None).step(z.clone(), ALL)
    assert step.flatten().tolist() == [-1.0, 0.0, -3.0, 0.0]


@pytest.mark.parametrize("activation", [*MONOTONE, *OTHERS], ids=name)
def test_the_regression_lowers_the_error_behind_the_activation_on_other_rows(
    activation: Activation,
) -> None:
    """Compared with the start, and with the regression that ignores the activation."""
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(6000, 1, 12, generator=generator)
    W = torch.randn(5, 12, generator=generator)
    target = 1.5 * X[:, 0] @ W.T + 0.5
    narrow = X[..., :8]  # too few inputs for an exact solution
    start = W[:, :8]
    fitted, other = slice(0, 3000), slice(3000, 6000)
    errors = {}
    for used in (None, activation):
        task = Regression(
            [narrow[fitted].clone()], target[fitted], torch.zeros(1, 5), scale=None,
            activation=used, shifts=True,
        )  # fmt: skip
        solution = task.solve(start, torch.zeros(5))
        assert solution.change is not None
        y = narrow[other, 0] @ (start + solution.change).T + solution.shift
        errors[name(used)] = float(
            (activation.apply(y) - activation.apply(target[other])).square().mean()
        )
    y = narrow[other, 0] @ start.T
    before = float((activation.apply(y) - activation.apply(target[other])).square().mean())
    assert errors[activation.name] < before
    assert errors[activation.name] < errors["none"]
