from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.ops.between import Between, convolution, freezes, shrinks
from torch import nn

from interpress import find_spaces


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"dilation": 2}, {"padding": 1}])
def test_every_dimension(dims: int, options: dict) -> None:
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    first, last = kind(3, 8, 3, padding=1), kind(8, 4, 3, **options)
    x = torch.randn(2, 3, *[7] * dims, dtype=torch.float64)
    shrinks((Between(first, lambda _, h: h.relu(), last).double(), x), 8)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_transposed(dims: int) -> None:
    kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[dims - 1]
    first, last = kind(3, 8, 3), kind(8, 4, 2, stride=2, output_padding=1)
    x = torch.randn(2, 3, *[5] * dims, dtype=torch.float64)
    shrinks((Between(first, lambda _, h: h.relu(), last).double(), x), 8)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("multiplier", [1, 3])
def test_depthwise_is_carried(transposed: bool, multiplier: int) -> None:
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    layer = kind(8, 8 * multiplier, 3, groups=8)
    last = nn.Sequential(layer, nn.ReLU(), nn.Conv2d(8 * multiplier, 4, 1))
    model = Between(nn.Conv2d(3, 8, 1), lambda _, h: h.relu(), last).double()
    spaces = shrinks((model, torch.randn(2, 3, 7, 7, dtype=torch.float64)), 8)
    assert "last.0.weight" in spaces["first"].carriers


@pytest.mark.parametrize("transposed", [False, True])
def test_groups_keep_equally_many(transposed: bool) -> None:
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    layer = kind(12, 9, 3, groups=3)
    last = nn.Sequential(layer, nn.ReLU(), nn.Conv2d(9, 4, 1))
    model = Between(nn.Conv2d(3, 12, 1), lambda _, h: h.relu(), last).double()
    spaces = shrinks((model, torch.randn(2, 3, 7, 7, dtype=torch.float64)), 12, step=3)
    assert (spaces["last.0"].size, spaces["last.0"].step) == (9, 3)


def test_functional_weights() -> None:
    case = convolution(lambda m, h: F.conv2d(h, m.w).relu(), out=5, w=torch.randn(5, 12, 1, 1))
    shrinks(case, 12)


def test_attributes_are_true_again() -> None:
    from interpress.surgery.shrink import shrink

    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3, groups=8),
        nn.Conv2d(16, 12, 1, groups=2), nn.GroupNorm(12, 12),
        nn.ConvTranspose2d(12, 6, 2), nn.Flatten(),
        nn.Linear(6 * 25, 2),
    )  # fmt: skip
    spaces = find_spaces(model, torch.randn(2, 3, 8, 8))
    small = shrink(spaces, {"0": [0, 3, 4, 7], "3": [0, 1, 2, 6, 7, 8], "5": [1, 5]})
    text = str(small)
    assert "Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1))" in text
    assert "BatchNorm2d(4" in text
    assert "Conv2d(4, 8, kernel_size=(3, 3), stride=(1, 1), groups=4)" in text
    assert "Conv2d(8, 6, kernel_size=(1, 1), stride=(1, 1), groups=2)" in text
    assert "GroupNorm(6, 6" in text
    assert "ConvTranspose2d(6, 2," in text
    assert "Linear(in_features=50, out_features=2" in text


def test_without_a_batch_dim_it_freezes() -> None:
    case = convolution(lambda _, h: F.conv2d(h[0], h.new_ones(12, 12, 1, 1))[None])
    freezes(case, "")
