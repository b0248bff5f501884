from __future__ import annotations

import pytest
import torch
from tests.ops.between import freezes, linear, shrinks


@pytest.mark.parametrize(
    "middle",
    [
        lambda _, h: h.mean(1),
        lambda _, h: h.sum(1, keepdim=True) + h,
        lambda _, h: h.amax(1),
        lambda _, h: h.max(1).values,
        lambda _, h: h.var(1),
        lambda _, h: h.std(1, keepdim=True) * h,
        lambda _, h: h.softmax(1),
        lambda _, h: h.cumsum(1),
        lambda _, h: h.sort(1).values,
        lambda _, h: h.topk(2, 1)[0],
        lambda _, h: h.logsumexp(1),
        lambda _, h: torch.maximum(h, -h),
    ],
)
def test_over_tokens(middle) -> None:
    shrinks(linear(middle), 12)


@pytest.mark.parametrize(
    "middle",
    [
        lambda _, h: h.mean(-1, keepdim=True) + h,
        lambda _, h: h - h.max(),
        lambda _, h: h.softmax(-1),
        lambda _, h: h.cumsum(-1),
        lambda _, h: h.sort(-1).values,
        lambda _, h: h * h.argmax(-1, keepdim=True),
        lambda _, h: h / h.std(),
    ],
)
def test_over_channels(middle) -> None:
    freezes(linear(middle), "its channels")
