from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.ops.between import Between, convolution, freezes, linear, shrinks
from torch import nn


def test_batch_norm_is_carried_with_its_statistics() -> None:
    norm = nn.BatchNorm2d(8)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    last = nn.Sequential(norm, nn.ReLU(), nn.Conv2d(8, 4, 1))
    model = Between(nn.Conv2d(3, 8, 1), lambda _, h: h, last).double()
    spaces = shrinks((model, torch.randn(2, 3, 5, 5, dtype=torch.float64)), 8)
    assert {"last.0.weight", "last.0.running_var"} <= set(spaces["first"].carriers)


def test_batch_norm_without_parameters() -> None:
    last = nn.Sequential(nn.BatchNorm2d(8, affine=False), nn.Conv2d(8, 4, 1))
    model = Between(nn.Conv2d(3, 8, 1), lambda _, h: h, last).double()
    shrinks((model, torch.randn(2, 3, 5, 5, dtype=torch.float64)), 8)


def test_instance_norm_and_one_group_per_channel() -> None:
    shrinks(convolution(lambda m, h: F.instance_norm(h, weight=m.w), w=torch.rand(12)), 12)
    layers = nn.Sequential(nn.GroupNorm(12, 12), nn.Conv2d(12, 4, 1))
    model = Between(nn.Conv2d(3, 12, 1), lambda _, h: h, layers).double()
    shrinks((model, torch.randn(2, 3, 5, 5, dtype=torch.float64)), 12)


def test_norms_over_channels_freeze() -> None:
    freezes(linear(lambda m, h: F.layer_norm(h, (12,), m.w), w=torch.rand(12)), "(LayerNorm)")
    freezes(linear(lambda m, h: F.rms_norm(h, (12,), m.w), w=torch.rand(12)), "(RMSNorm)")
    freezes(convolution(lambda m, h: F.group_norm(h, 3, m.w), w=torch.rand(12)), "(GroupNorm)")
    freezes(linear(lambda _, h: h / h.norm(dim=-1, keepdim=True)), "mixes its channels")
    freezes(linear(lambda _, h: F.normalize(h, dim=-1)), "mixes its channels")
    freezes(convolution(lambda _, h: F.local_response_norm(h, 3)), "")


def test_norms_within_heads_leave_heads_alone() -> None:
    freezes(
        linear(lambda _, h: F.layer_norm(h.unflatten(-1, (3, 4)), (4,)).flatten(-2)), "(LayerNorm)"
    )
