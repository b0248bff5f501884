"""`cp`: LASSO drops the channels whose contributions others can make up for."""

import torch
from torch import nn

import interpress
from interpress import Method
from interpress.selection.rules.cp import _lasso, lasso_scores


def test_the_solver_meets_the_conditions_of_a_minimum() -> None:
    torch.manual_seed(0)
    parts = torch.randn(50, 12, dtype=torch.float64)
    A, b = parts.T @ parts, torch.randn(12, dtype=torch.float64) * 20
    curvature = float(torch.linalg.matrix_norm(A, 2))
    x = _lasso(A, b, 5.0, curvature, torch.zeros_like(b))
    gradient = A @ x - b
    kept = x != 0
    assert 0 < int(kept.sum()) < 12
    torch.testing.assert_close(gradient[kept], -5.0 * x[kept].sign(), rtol=0, atol=1e-6)
    assert bool((gradient[~kept].abs() <= 5.0).all())


def test_planted_redundant_channels_are_dropped_first() -> None:
    """Their contributions are sums of others with coefficients that cost less than their own."""
    torch.manual_seed(0)
    basis = torch.randn(200, 5, dtype=torch.float64)
    mix = torch.tensor([[0.3, 0.4, 0, 0, 0], [0, 0, -0.5, 0.2, 0.1]], dtype=torch.float64)
    parts = torch.cat([basis[:, :2], basis @ mix.T, basis[:, 2:]], 1)  # 2 and 3 are redundant
    scores = lasso_scores(parts.T @ parts, torch.ones(7, dtype=torch.float64))
    assert set(scores.argsort()[:2].tolist()) == {2, 3}


def test_a_network_without_its_redundant_channels_computes_the_same() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3))
    with torch.no_grad():
        model[0].weight[7:] = 0.2 * model[0].weight[:3]  # ReLU keeps the factor
        model[0].bias[7:] = 0.2 * model[0].bias[:3]
    images = torch.randn(300, 6)
    analysis = interpress.analyze(model, images, progress=False)
    method = Method(selection="cp", allocation="constant", refit=False, regularize=False)
    smaller = analysis.compress(width=0.7, method=method, progress=False).model
    with torch.no_grad():
        torch.testing.assert_close(smaller(images), model(images), rtol=0, atol=1e-3)


def test_without_contributions_all_channels_are_equal() -> None:
    scores = lasso_scores(torch.zeros(4, 4, dtype=torch.float64), torch.zeros(4).double())
    assert not scores.any()
