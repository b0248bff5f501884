from __future__ import annotations

import torch
from tests.ops.between import freezes, linear, shrinks


def test_zero_channels_from_nothing() -> None:
    def middle(_, h):
        zeros = h.new_zeros(h.shape[0], h.shape[1], 3)
        return torch.cat([h, zeros], -1)

    shrinks(linear(middle, out=15), 12)


def test_triangles_set_channels_to_zero_by_position() -> None:
    freezes(linear(lambda _, h: h.tril()), "sets its channels to zero by position")
    shrinks(linear(lambda _, h: torch.ones(6, 6, dtype=h.dtype).tril() @ h), 12)
