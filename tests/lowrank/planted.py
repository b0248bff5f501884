"""Networks with a layer whose outputs truly have a low rank."""

from __future__ import annotations

import torch
from torch import Tensor, nn

RANK = 6


def of_rank(weight: Tensor, rank: int = RANK) -> Tensor:
    """Return the best approximation of a weight that has a rank."""
    U, S, V = torch.linalg.svd(weight.flatten(1).double(), full_matrices=False)
    low = (U[:, :rank] * S[:rank]) @ V[:rank]
    return low.reshape(weight.shape).to(weight)


def planted_mlp() -> nn.Sequential:
    """Return a network whose middle layer has rank 6, and no redundant channels."""
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 8)
    ).double().eval()  # fmt: skip
    with torch.no_grad():
        model[2].weight.copy_(of_rank(model[2].weight))
        model[2].bias.normal_(0.0, 0.5)
    return model


def planted_cnn() -> nn.Sequential:
    """Return a convolutional network whose second convolution has rank 6."""
    torch.manual_seed(4)
    model = nn.Sequential(
        nn.Conv2d(2, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(),
        nn.Conv2d(24, 32, 3, stride=2, padding=2, dilation=2, bias=False), nn.BatchNorm2d(32),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5),
    ).eval()  # fmt: skip
    with torch.no_grad():
        model[3].weight.copy_(of_rank(model[3].weight))
        for norm in (model[1], model[4]):
            norm.running_mean.normal_(0.0, 0.3)
            norm.running_var.uniform_(0.5, 2.0)
            norm.weight.uniform_(0.5, 1.5)
    return model


def rows(count: int = 300, seed: int = 0) -> Tensor:
    """Return inputs of `planted_mlp`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 16, generator=generator).double()


def images(count: int = 120, seed: int = 0) -> Tensor:
    """Return inputs of `planted_cnn`."""
    return torch.randn(count, 2, 9, 9, generator=torch.Generator().manual_seed(seed))
