"""Detection and segmentation beside YOLO: feature pyramids, atrous pooling, DETR."""

from __future__ import annotations

import math

import torch
from tests.zoo.detectors import Conv
from torch import Tensor, nn
from torch.nn import functional as F


class FPN(nn.Module):
    """Lateral convolutions, sums with upsampled features; boxes and scores on every level."""

    def __init__(self, c: int = 6, out: int = 8) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            Conv(a, b, 3, 2) for a, b in ((3, c), (c, 2 * c), (2 * c, 4 * c))
        )
        self.lateral = nn.ModuleList(nn.Conv2d(a, out, 1) for a in (c, 2 * c, 4 * c))
        self.smooth = nn.ModuleList(nn.Conv2d(out, out, 3, padding=1) for _ in range(3))
        self.boxes, self.scores = nn.Conv2d(out, 4, 1), nn.Conv2d(out, 3, 1)

    def forward(self, x: Tensor) -> dict[str, list[Tensor]]:
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        y = self.lateral[2](features[2])
        levels = [y]
        for index in (1, 0):
            y = F.interpolate(y, scale_factor=2) + self.lateral[index](features[index])
            levels.append(y)
        smoothed = [s(level) for s, level in zip(self.smooth, levels, strict=True)]
        boxes = [self.boxes(level).relu() for level in smoothed]
        return {"boxes": boxes, "scores": [self.scores(level) for level in smoothed]}


class ASPP(nn.Module):
    """Segmentation by convolutions of several dilations and a pooled branch, as in DeepLab."""

    def __init__(self, c: int = 8, inner: int = 6, classes: int = 4) -> None:
        super().__init__()
        self.stem, self.body = Conv(3, c, 3, 2), Conv(c, 2 * c, 3, 2)
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Conv2d(2 * c, inner, 3, padding=d, dilation=d, bias=False),
                          nn.BatchNorm2d(inner), nn.ReLU())
            for d in (1, 2, 3)
        )  # fmt: skip
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(2 * c, inner, 1), nn.ReLU())
        self.project = Conv(4 * inner, 2 * inner)
        self.low, self.classify = Conv(c, 3), nn.Conv2d(2 * inner + 3, classes, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        size, low = x.shape[-2:], self.stem(x)
        y = self.body(low)
        pooled = F.interpolate(self.pooled(y), size=y.shape[-2:], mode="bilinear")
        y = self.project(torch.cat([*(branch(y) for branch in self.branches), pooled], 1))
        y = F.interpolate(y, size=low.shape[-2:], mode="bilinear", align_corners=False)
        y = self.classify(torch.cat((y, self.low(low)), 1))
        return F.interpolate(y, size=size, mode="bilinear", align_corners=False)


class CrossAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        def by_head(y: Tensor) -> Tensor:
            return y.view(len(y), -1, self.heads, self.head_dim).transpose(1, 2)

        y = F.scaled_dot_product_attention(
            by_head(self.q(x)), by_head(self.k(memory)), by_head(self.v(memory))
        )
        return self.out(y.transpose(1, 2).flatten(2))


class DETRLayer(nn.Module):
    """A layer of the encoder, or of the decoder with `cross`."""

    def __init__(self, dim: int, heads: int, hidden: int, cross: bool) -> None:
        super().__init__()
        self.attn = CrossAttention(dim, heads)
        self.cross = CrossAttention(dim, heads) if cross else None
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3 if cross else 2))
        self.up, self.down = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        x = self.norms[0](x + self.attn(x, x))
        if self.cross is not None and memory is not None:
            x = self.norms[1](x + self.cross(x, memory))
        return self.norms[-1](x + self.down(F.relu(self.up(x))))


class DETR(nn.Module):
    """A convolutional backbone, a transformer, learned queries, and heads for boxes and classes."""

    def __init__(self, dim: int = 16, heads: int = 2, queries: int = 5, classes: int = 3) -> None:
        super().__init__()
        self.backbone = nn.Sequential(Conv(3, 8, 3, 2), Conv(8, 12, 3, 2))
        self.project = nn.Conv2d(12, dim, 1)
        self.position = nn.Parameter(torch.randn(16, dim) / math.sqrt(dim))
        self.queries = nn.Embedding(queries, dim)
        self.encoder = DETRLayer(dim, heads, 24, cross=False)
        self.decoder = DETRLayer(dim, heads, 24, cross=True)
        self.box = nn.Sequential(nn.Linear(dim, 20), nn.ReLU(), nn.Linear(20, 4))
        self.score = nn.Linear(dim, classes + 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        tokens = self.project(self.backbone(x)).flatten(2).transpose(1, 2) + self.position
        queries = self.queries.weight.repeat(len(x), 1, 1)
        y = self.decoder(queries, self.encoder(tokens))
        return {"pred_logits": self.score(y), "pred_boxes": self.box(y).sigmoid()}
