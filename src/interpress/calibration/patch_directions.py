"""A few directions per channel that stand for the large patches of a convolution.

With `X` the centred patches of one channel (rows x kernel) and `U` the weights that read them
(kernel x outputs), the best approximation of `X @ U` of a given rank is

    X @ U ~= (X @ B) @ (D.T @ U)      G = X.T @ X = L @ L.T
                                      B = inverse(L.T) @ S,  D = L @ S

where `S` has the leading left singular vectors of `L.T @ U`. So directions in which patches vary
but that the layer hardly reads are left out, and so are directions that it reads but in which
patches hardly vary.
"""

from __future__ import annotations

import torch
from torch import Tensor

_RIDGE = 1e-4  # relative to the mean diagonal: the patches of one batch may not span all directions


def main_directions(X: Tensor, W: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return `B` and `D` (channels, kernel, count) for patches of a batch and the weights.

    `X` (rows, channels * kernel) need not be centred. `W` is (outputs, channels, kernel).
    """
    centred = (X - X.mean(0)).reshape(len(X), *W.shape[1:])
    G = torch.einsum("rck,rcl->ckl", centred, centred).double().cpu()
    diagonal = G.diagonal(dim1=1, dim2=2)
    diagonal += _RIDGE * diagonal.mean(1, keepdim=True).clamp(min=1e-30)
    L = torch.linalg.cholesky(G)  # (channels, kernel, kernel)
    read = L.mT @ W.double().cpu().permute(1, 2, 0)  # (channels, kernel, outputs)
    S = torch.linalg.eigh(read @ read.mT).eigenvectors[:, :, -count:]
    B = torch.linalg.solve_triangular(L.mT, S, upper=True)
    lengths = B.norm(dim=1, keepdim=True)
    return (B / lengths).to(X), (L @ S * lengths).to(X)
