"""A small MaxViT: inverted bottlenecks, attention in windows, attention on a grid."""

from __future__ import annotations

import torch
from tests.zoo.attention import WindowAttention
from tests.zoo.residual import InvertedResidual
from torch import Tensor, nn


class Partition(nn.Module):
    """Attention within blocks of `window` pixels, or across them on a grid."""

    def __init__(self, width: int, heads: int, window: int, grid: bool) -> None:
        super().__init__()
        self.window, self.grid = window, grid
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = WindowAttention(width, heads, window)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        k = self.window
        order = (0, 3, 5, 2, 4, 1) if self.grid else (0, 2, 4, 3, 5, 1)
        sizes = (b, c, k, h // k, k, w // k) if self.grid else (b, c, h // k, k, w // k, k)
        y = x.reshape(sizes).permute(order).reshape(-1, k * k, c)
        y = y + self.attn(self.norm1(y), None)
        y = y + self.mlp(self.norm2(y))
        y = y.reshape(b, h // k, w // k, k, k, c)
        y = y.permute(0, 5, 3, 1, 4, 2) if self.grid else y.permute(0, 5, 1, 3, 2, 4)
        return y.reshape(b, c, h, w)


class MaxViT(nn.Module):
    def __init__(self, size: int = 16, width: int = 16, window: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        layers: list[nn.Module] = []
        for index in range(2):
            stride = 2 if index == 1 and size >= 16 else 1
            layers += [
                InvertedResidual(width, width, 2, stride, nn.SiLU, True),
                Partition(width, 4, window, grid=False),
                Partition(width, 4, window, grid=True),
            ]
        self.layers = nn.Sequential(*layers)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(self.stem(x))
        return self.head(torch.tanh(self.norm(x.mean((2, 3)))))
