"""Matrices that several tests of the linear algebra share."""

import torch
from benchmarks.matrices import FAMILIES
from torch import Tensor

N = 60
DEGENERATE = {
    "single_column": torch.tensor([[3.0], [4.0]], dtype=torch.float64),
    "single_row": torch.arange(1.0, 7.0, dtype=torch.float64)[None, :],
    "single_entry": torch.tensor([[-2.0]], dtype=torch.float64),
    "rank_zero": torch.zeros(9, 5, dtype=torch.float64),
    "identical_columns": torch.ones(8, 6, dtype=torch.float64),
}
MATRICES = {name: family(N, 0) for name, family in FAMILIES.items()} | DEGENERATE


def normal(rows: int, n: int, seed: int = 0) -> Tensor:
    """Return (rows, n) float64 normal numbers."""
    return torch.randn(rows, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def consumer_weights(n: int, outputs: int, seed: int = 5) -> Tensor:
    """Return `U` (n, outputs), float32 numbers stored as float64."""
    return torch.randn(n, outputs, generator=torch.Generator().manual_seed(seed)).double()


def relative_difference(a: Tensor, b: Tensor) -> float:
    """Return `||a - b||_F / ||b||_F`."""
    return float(torch.linalg.matrix_norm(a - b) / torch.linalg.matrix_norm(b))
