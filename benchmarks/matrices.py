"""Families of test matrices, from easy to hard. All are float64 and reproducible."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor


def _normal(rows: int, n: int, seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((rows, n)))


def random(n: int, seed: int = 0) -> Tensor:
    """Independent normal entries, twice as many rows as columns: no column is redundant."""
    return _normal(2 * n, n, seed)


def low_rank_plus_noise(n: int, seed: int = 0) -> Tensor:
    """Rank n/4 plus noise of relative size 1e-3."""
    core = max(1, n // 4)
    signal = _normal(2 * n, core, seed) @ _normal(core, n, seed + 1) / core**0.5
    return signal + 1e-3 * _normal(2 * n, n, seed + 2)


def decaying(n: int, seed: int = 0) -> Tensor:
    """Singular values that fall by five decades, as those of a layer's activations do."""
    left = torch.linalg.qr(_normal(2 * n, n, seed)).Q
    right = torch.linalg.qr(_normal(n, n, seed + 1)).Q
    return left * torch.logspace(0, -5, n, dtype=torch.float64) @ right


def activations(n: int, seed: int = 0) -> Tensor:
    """Outputs of a ReLU layer with correlated neurons, rounded to float32."""
    inputs = _normal(4 * n, max(2, n // 4), seed)
    weights = _normal(max(2, n // 4), n, seed + 1)
    return (inputs @ weights + 0.3 * _normal(1, n, seed + 2)).relu().float().double()


def kahan(n: int, seed: int = 0) -> Tensor:
    """Kahan's matrix, which misleads column pivoting; perturbed so that pivots are unique."""
    angle = 1.2
    s, c = np.sin(angle), np.cos(angle)
    upper = torch.eye(n, dtype=torch.float64) - c * torch.ones(n, n).double().triu(1)
    scaled = (s ** torch.arange(n, dtype=torch.float64))[:, None] * upper
    return scaled * (1 - 1e-7 * torch.arange(n, dtype=torch.float64))


def hilbert(n: int, seed: int = 0) -> Tensor:
    """1 / (i + j + 1): the numerical rank is about 20 for any n."""
    index = torch.arange(n, dtype=torch.float64)
    return 1 / (index[:, None] + index + 1)


def duplicate_columns(n: int, seed: int = 0) -> Tensor:
    """Every column appears twice, the second time scaled by 0.5."""
    half = _normal(2 * n, (n + 1) // 2, seed)
    return torch.cat([half, 0.5 * half], dim=1)[:, :n]


def zero_columns(n: int, seed: int = 0) -> Tensor:
    """Every third column is zero, like a dead channel."""
    matrix = _normal(2 * n, n, seed)
    matrix[:, ::3] = 0
    return matrix


def tiny(n: int, seed: int = 0) -> Tensor:
    """`decaying`, scaled by 1e-20."""
    return 1e-20 * decaying(n, seed)


def huge(n: int, seed: int = 0) -> Tensor:
    """`decaying`, scaled by 1e20."""
    return 1e20 * decaying(n, seed)


def wide(n: int, seed: int = 0) -> Tensor:
    """Three times as many columns as rows."""
    return _normal(max(1, n // 3), n, seed)


FAMILIES: dict[str, Callable[[int, int], Tensor]] = {
    family.__name__: family
    for family in (
        random,
        low_rank_plus_noise,
        decaying,
        activations,
        kahan,
        hilbert,
        duplicate_columns,
        zero_columns,
        tiny,
        huge,
        wide,
    )
}
