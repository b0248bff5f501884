"""PyTorch's own layers store their actual sizes after surgery."""

from __future__ import annotations

import torch
from tests.surgery.every_way import shrinks_every_way
from tests.zoo.checks import halved
from torch import nn

from interpress import find_spaces
from interpress.surgery.shrink import shrink


def test_sizes_of_layers() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.PReLU(8),
        nn.Conv2d(8, 16, 3, groups=8), nn.GroupNorm(16, 16), nn.ConvTranspose2d(16, 6, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4), nn.Linear(4, 2),
    )  # fmt: skip
    spaces = find_spaces(model, torch.randn(2, 3, 6, 6))
    kept = {space.name: halved(space, seed=0) for space in spaces.shrinkable}
    small = shrink(spaces, kept)
    for before, layer in zip(model, small, strict=True):
        shape_of = {
            nn.Conv2d: lambda m: (m.out_channels, m.in_channels // m.groups, *m.kernel_size),
            nn.ConvTranspose2d: lambda m: (m.in_channels, m.out_channels, *m.kernel_size),
            nn.Linear: lambda m: (m.out_features, m.in_features),
            nn.BatchNorm2d: lambda m: (m.num_features,),
            nn.GroupNorm: lambda m: (m.num_channels,),
            nn.PReLU: lambda m: (m.num_parameters,),
        }.get(type(layer))
        if shape_of is not None:
            assert layer.weight.shape == shape_of(layer), layer
            assert layer.weight.numel() < before.weight.numel()


def test_sizes_of_norms_without_parameters() -> None:
    model = nn.Sequential(
        nn.Conv1d(2, 8, 1), nn.GroupNorm(8, 8, affine=False), nn.ReLU(), nn.Conv1d(8, 8, 1),
        nn.BatchNorm1d(8, affine=False, track_running_stats=False), nn.Conv1d(8, 3, 1),
    )  # fmt: skip
    spaces = shrinks_every_way(model, torch.randn(3, 2, 5))
    small = shrink(spaces, {"0": [0, 3, 4], "3": [1, 2]})
    assert (small[1].num_channels, small[1].num_groups, small[4].num_features) == (3, 3, 2)


def test_sizes_of_embeddings() -> None:
    model = nn.Sequential(nn.Embedding(9, 8), nn.ReLU(), nn.Linear(8, 3))
    spaces = find_spaces(model, torch.randint(0, 9, (3, 5)))
    small = shrink(spaces, {"0": [0, 1, 2]})
    assert (small[0].num_embeddings, small[0].embedding_dim) == (9, 3)
