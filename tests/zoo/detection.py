"""Detectors, whose code after the backbone depends on what they find."""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FrozenBatchNorm(nn.Module):
    """A batch norm whose four vectors are buffers, as in detectors."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.rand(channels) + 0.5)
        self.register_buffer("bias", torch.randn(channels) / 4)
        self.register_buffer("running_mean", torch.randn(channels) / 4)
        self.register_buffer("running_var", torch.rand(channels) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        weight, bias, mean, var = (
            buffer.reshape(1, -1, 1, 1)
            for buffer in (self.weight, self.bias, self.running_mean, self.running_var)
        )
        scale = weight * (var + 1e-5).rsqrt()
        return x * scale + (bias - mean * scale)


def stage(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), FrozenBatchNorm(outputs), nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), FrozenBatchNorm(outputs), nn.ReLU(),
    )  # fmt: skip


class Pyramid(nn.Module):
    """A backbone with frozen batch norms and a feature pyramid; it returns maps by name."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = stage(3, 8), stage(8, 12)
        self.inner = nn.ModuleList([nn.Conv2d(8, 6, 1), nn.Conv2d(12, 6, 1)])
        self.layer = nn.ModuleList([nn.Conv2d(6, 6, 3, padding=1) for _ in range(2)])

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        one = self.one(x)
        two = self.two(one)
        low = self.inner[1](two)
        high = self.inner[0](one) + F.interpolate(low, size=one.shape[-2:])
        maps = OrderedDict([("0", self.layer[0](high)), ("1", self.layer[1](low))])
        maps["pool"] = F.max_pool2d(maps["1"], 1, 2)
        return maps


class Head(nn.Module):
    """One tower for all levels."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Conv2d(6, 10, 3, padding=1), nn.ReLU())
        self.scores, self.boxes = nn.Conv2d(10, 1, 1), nn.Conv2d(10, 4, 1)

    def forward(self, maps: list[Tensor]) -> tuple[Tensor, Tensor]:
        features = [self.tower(level) for level in maps[:2]]
        scores = torch.cat([self.scores(f).flatten(1) for f in features], 1)
        boxes = torch.cat([self.boxes(f).flatten(2).transpose(1, 2) for f in features], 1)
        return scores, boxes


class Detector(nn.Module):
    """Takes a list of images, and keeps the boxes whose score is high: as many as there are."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.head = Pyramid(), Head()
        self.unused = nn.Linear(2, 2)

    def forward(
        self, images: list[Tensor], targets: list[dict[str, Tensor]] | None = None
    ) -> list[dict[str, Tensor]]:
        if self.training and targets is None:
            raise ValueError("targets are needed for training")
        batch = torch.stack([(image - 0.5) / 0.25 for image in images])
        scores, boxes = self.head(list(self.backbone(batch).values()))
        found = []
        for score, box in zip(scores, boxes, strict=True):
            kept = [index for index in range(len(score)) if score[index] > score.mean()]
            found.append({"boxes": box[kept], "scores": score[kept]})
        return found
