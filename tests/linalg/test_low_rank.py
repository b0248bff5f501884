"""The best approximation of a layer by two thin ones."""

from __future__ import annotations

import torch
from torch import Tensor

from interpress.linalg.low_rank import (
    Factors,
    discarded_energies,
    factors_of,
    principal_components,
    usable_scales,
)


def _layer() -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs (rows, 12), a weight (9, 12) and scales (9,)."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(400, 12, generator=generator, dtype=torch.float64)
    X = X @ torch.randn(12, 12, generator=generator, dtype=torch.float64)
    W = torch.randn(9, 12, generator=generator, dtype=torch.float64)
    return X, W, 0.5 + torch.rand(9, generator=generator, dtype=torch.float64)


def _covariance(values: Tensor) -> Tensor:
    return torch.cov(values.T, correction=0)


def test_the_factors_are_the_whitened_svd() -> None:
    """With the factor R of the inputs, they are the SVD of `D W R.T` cut off at the rank."""
    X, W, scales = _layer()
    scaled = scales[:, None] * W
    factors = factors_of(W, _covariance(X @ scaled.T), scales, rank=4)
    R = torch.linalg.cholesky(_covariance(X)).T
    U, S, V = torch.linalg.svd(scaled @ R.T)
    expected = ((U[:, :4] * S[:4]) @ V[:4]) @ torch.linalg.inv(R.T) / scales[:, None]
    torch.testing.assert_close(factors.product(), expected, atol=1e-9, rtol=1e-9)
    assert factors.A.shape == (9, 4)
    assert factors.B.shape == (4, 12)
    assert factors.rank == 4


def test_no_other_factors_of_that_rank_are_better() -> None:
    X, W, scales = _layer()
    X = X - X.mean(0)

    def loss(product: Tensor) -> float:
        return float(((X @ (W - product).T) * scales).square().sum())

    best = loss(factors_of(W, _covariance((X @ W.T) * scales), scales, rank=3).product())
    U, S, V = torch.linalg.svd(W, full_matrices=False)
    assert best < 0.9 * loss((U[:, :3] * S[:3]) @ V[:3])
    torch.manual_seed(1)
    for _ in range(20):
        P = torch.linalg.qr(torch.randn(9, 3, dtype=torch.float64))[0]
        assert best <= loss((P / scales[:, None]) @ (P.T @ (scales[:, None] * W)))


def test_the_full_rank_changes_nothing() -> None:
    X, W, scales = _layer()
    factors = factors_of(W, _covariance((X @ W.T) * scales), scales, rank=9)
    torch.testing.assert_close(factors.product(), W)


def test_discarded_energies_are_those_of_the_other_half() -> None:
    generator = torch.Generator().manual_seed(2)
    mix = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    first, second = (
        _covariance(torch.randn(20, 6, generator=generator, dtype=torch.float64) @ mix)
        for _ in range(2)
    )
    losses = discarded_energies(first, second)
    assert losses.shape == (7,)
    assert float(losses[0]) == 1.0
    assert float(losses[6]) == 0.0
    by_hand = []
    for fitted, judged in ((first, second), (second, first)):
        _, P = principal_components(fitted)
        Q = torch.eye(6, dtype=torch.float64) - P[:, :2] @ P[:, :2].T
        by_hand.append(float((Q @ judged @ Q).trace() / judged.trace()))
    assert abs(float(losses[2]) - sum(by_hand) / 2) < 1e-12
    in_sample = principal_components(first)[0]
    assert losses[2] > in_sample[2:].sum() / in_sample.sum()


def test_scales_are_bounded_from_below() -> None:
    scales = usable_scales(torch.tensor([1.0, -2.0, 0.0]))
    torch.testing.assert_close(scales, torch.tensor([1.0, 2.0, 1e-3]))
    assert bool((usable_scales(torch.zeros(3)) > 0).all())


def test_the_product_is_rounded_once() -> None:
    A, B = torch.full((1, 3), 0.1), torch.tensor([[1e8], [1.0], [-1e8]])
    assert float(Factors(A, B).product()) == float((A.double() @ B.double()).float())
