from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.ops.between import convolution, freezes, linear, shrinks


@pytest.mark.parametrize(
    "middle",
    [
        lambda _, h: torch.cat([h, -h], -1).relu(),
        lambda _, h: h.repeat(1, 1, 2),
        lambda _, h: torch.tile(h, (2,)),
        lambda _, h: h.repeat_interleave(2, -1),
        lambda _, h: torch.stack([h, h.tanh()], -2).flatten(-2),
    ],
)
def test_longer(middle) -> None:
    shrinks(linear(middle, out=24), 12)


@pytest.mark.parametrize(
    "middle",
    [
        lambda _, h: (lambda a, b: a * b.sigmoid())(*h.chunk(2, -1)),
        lambda _, h: (lambda a, b: a * F.gelu(b))(*h.tensor_split(2, -1)),
        lambda _, h: h[..., : h.shape[-1] // 2] * h[..., h.shape[-1] // 2 :].tanh(),
        lambda _, h: F.glu(h),
        lambda _, h: (lambda p: p[0] * p[1])(h.unflatten(-1, (2, -1)).unbind(-2)),
        lambda _, h: h.unflatten(-1, (2, -1)).select(-2, 0) + h.unflatten(-1, (2, -1))[..., 1, :],
    ],
)
def test_gates(middle) -> None:
    shrinks(linear(middle, into=24), 12)


def test_halves_that_part_ways_shrink_alike() -> None:
    def middle(_, h):
        a, b = h.chunk(2, -1)
        return torch.cat([b.relu(), a], -1)

    shrinks(linear(middle), 12, step=2)


@pytest.mark.parametrize("amounts", [(2, 1), (0, 3)])
def test_padding_with_zero_channels(amounts) -> None:
    shrinks(linear(lambda _, h: F.pad(h, amounts), out=15), 12)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_padding_space(mode) -> None:
    shrinks(convolution(lambda _, h: F.pad(h, (1, 1, 1, 1), mode=mode)), 12)


def test_space_moves_freely() -> None:
    shrinks(convolution(lambda _, h: torch.roll(h, 2, -1)[:, :, ::2, 1:].flip(-1)), 12)


def test_pixel_shuffle_there_and_back() -> None:
    shrinks(convolution(lambda _, h: F.pixel_shuffle(h, 2).relu(), out=3), 3)
    shrinks(convolution(lambda _, h: F.pixel_unshuffle(h, 2), out=48), 12)


def test_channel_shuffle() -> None:
    shrinks(convolution(lambda _, h: F.channel_shuffle(h, 3)), 4)


@pytest.mark.parametrize(
    ("middle", "reason"),
    [
        (lambda _, h: torch.roll(h, 1, -1), "shifts it by a fixed number"),
        (lambda _, h: h[..., ::2].repeat(1, 1, 2), "takes every other member"),
        (lambda _, h: h[..., :1] * h[..., 1:].sum(-1, keepdim=True) + h, ""),
        (lambda _, h: torch.stack(list(h.unbind(-1)), -1), "takes its members one by one"),
    ],
)
def test_positions_that_mean_something_freeze(middle, reason) -> None:
    freezes(linear(middle), reason)
