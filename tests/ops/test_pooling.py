from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.ops.between import Between, convolution, shrinks
from torch import nn


@pytest.mark.parametrize(
    "middle",
    [
        lambda _, h: F.avg_pool2d(h, 2),
        lambda _, h: F.max_pool2d(h, 3, 2, 1),
        lambda _, h: F.max_pool2d(h, 2, return_indices=True)[0],
        lambda _, h: F.adaptive_avg_pool2d(h, 2),
        lambda _, h: F.adaptive_max_pool2d(h, 2),
        lambda _, h: F.interpolate(h, scale_factor=2, mode="nearest"),
        lambda _, h: F.interpolate(h, size=(5, 5), mode="bicubic"),
        lambda _, h: F.interpolate(h, scale_factor=0.5, mode="bilinear", antialias=True),
        lambda _, h: F.grid_sample(h, h.new_zeros(3, 4, 4, 2), align_corners=False),
    ],
)
def test_channels_are_left_to_themselves(middle) -> None:
    shrinks(convolution(middle), 12)


@pytest.mark.parametrize(
    ("kind", "pool"),
    [(nn.Conv1d, nn.AvgPool1d), (nn.Conv1d, nn.MaxPool1d), (nn.Conv3d, nn.AdaptiveAvgPool3d)],
)
def test_other_dimensions(kind, pool) -> None:
    dims = 1 if kind is nn.Conv1d else 3
    model = Between(kind(3, 8, 1), lambda _, h: h, nn.Sequential(pool(2), kind(8, 4, 1))).double()
    shrinks((model, torch.randn(2, 3, *[6] * dims, dtype=torch.float64)), 8)
