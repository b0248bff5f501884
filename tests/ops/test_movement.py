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
    "middle",
    [
        lambda _, h: h.unfold(1, 3, 1).mean(-1),
        lambda _, h: h.unfold(-2, 2, 2).amax(-1),
        lambda _, h: h.unfold(1, 4, 2).transpose(-1, -2).flatten(1, 2),
    ],
)
def test_windows_of_tokens(middle) -> None:
    shrinks(linear(middle), 12)


def test_windows_of_channels_freeze() -> None:
    remedy = "aten.unfold takes windows of its channels; unfold a dim without channels"
    freezes(linear(lambda _, h: h.unfold(-1, 4, 4).mean(-1), out=3), remedy)


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"padding": 1}, {"dilation": 2}])
def test_image_patches_repeat_every_channel(options) -> None:
    def middle(_, h):
        return F.unfold(h, (2, 3), **options)[..., None]  # (N, C * 6, L, 1)

    spaces = shrinks(convolution(middle, out=72), 12)
    assert spaces.taps["last.weight reads conv2d_1"].sites[0].positions.shape == (6, 12)


def test_image_patches_times_a_matrix_are_a_convolution() -> None:
    def middle(m, h):
        return (m.w @ F.unfold(h.relu(), 3, padding=1)).relu().unflatten(-1, (8, 8))

    spaces = shrinks(convolution(middle, out=5, w=torch.randn(5, 12 * 9) / 10), 12)
    assert "w" in spaces["first"].consumers


def test_image_patches_per_channel_keep_all_kernel_positions() -> None:
    def middle(_, h):
        patches = F.unfold(h, 2)  # (N, C * 4, L)
        return patches.unflatten(1, (-1, 4)).mean(2)[..., None]

    shrinks(convolution(middle), 12)


def test_image_patches_without_a_batch_dim() -> None:
    def middle(_, h):
        return torch.stack([F.unfold(h[i], 2) for i in range(2)])[..., None]

    shrinks(convolution(middle, out=48), 12)


def test_image_patches_of_a_labelled_dim_freeze() -> None:
    def middle(_, h):
        return F.unfold(h[:, None], (1, 3), padding=(0, 1)).mean(1).unflatten(-1, (6, 12))

    freezes(linear(middle), "all its channels are tied to each other")


@pytest.mark.parametrize(
    ("middle", "reason"),
    [
        (lambda _, h: torch.roll(h, 1, -1), "shifts its channels by a fixed number"),
        (lambda _, h: h[..., ::2].repeat(1, 1, 2), "takes every n-th of its channels"),
        (lambda _, h: h[..., :1] * h[..., 1:].sum(-1, keepdim=True) + h, ""),
        (
            lambda _, h: torch.stack(list(h.unbind(-1)), -1),
            "takes one of its channels by its index",
        ),
    ],
)
def test_positions_that_mean_something_freeze(middle, reason) -> None:
    freezes(linear(middle), reason)
