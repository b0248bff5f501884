from __future__ import annotations

import pytest
import torch
from tests.ops.between import convolution, freezes, linear, shrinks


@pytest.mark.parametrize(
    "middle",
    [
        lambda _, h: h.permute(2, 0, 1).permute(1, 2, 0),
        lambda _, h: h.transpose(1, 2).transpose(-1, -2).contiguous(),
        lambda _, h: h.mT.mT,
        lambda _, h: h.unsqueeze(1).squeeze(1),
        lambda _, h: h.reshape(-1, h.shape[-1]).view(h.shape[0], -1, h.shape[-1]),
        lambda _, h: h.movedim(-1, 0).movedim(0, -1),
        lambda _, h: h.flatten(0, 1).unflatten(0, (3, 6)),
        lambda _, h: h[:, None].expand(-1, 2, -1, -1).mean(1),
        lambda _, h: h.flip(1).flip(-1),
        lambda _, h: h.view_as(h),
    ],
)
def test_renaming_dims(middle) -> None:
    shrinks(linear(middle), 12)


def test_heads_keep_equally_many() -> None:
    shrinks(linear(lambda _, h: h.unflatten(-1, (3, -1)).relu().flatten(-2)), 12, step=3)


def test_another_order_of_heads_takes_whole_slabs() -> None:
    def middle(_, h):
        return h.unflatten(-1, (3, -1)).transpose(-1, -2).flatten(-2)

    shrinks(linear(middle), 4)


def test_flatten_repeats_every_channel_over_space() -> None:
    case = convolution(lambda _, h: h.flatten(1)[:, :, None, None], out=12 * 64)
    spaces = shrinks(case, 12)
    assert spaces.taps["last.weight reads conv2d_1"].sites[0].positions.shape == (64, 12)


def test_reinterpreting_bytes_freezes() -> None:
    case = linear(lambda _, h: h.view(torch.int64).view(torch.float64))
    freezes(case, "reinterprets its bytes")
