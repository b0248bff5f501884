from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.ops.between import convolution, freezes, linear, made_by_first, shrinks

ACTIVATIONS = [
    torch.relu, F.relu6, F.gelu, F.silu, F.elu, F.selu, F.celu, F.leaky_relu, F.softplus, F.mish,
    F.hardswish, F.hardsigmoid, F.hardtanh, F.logsigmoid, F.softsign, F.tanhshrink, F.softshrink,
    torch.sin, torch.exp, torch.square, torch.erf, torch.sigmoid, torch.abs, F.dropout,
]  # fmt: skip


@pytest.mark.parametrize("act", ACTIVATIONS, ids=lambda f: f.__name__)
def test_activations(act) -> None:
    def middle(_, h):
        return act(h, 0.5, False) if act is F.dropout else act(h)

    shrinks(linear(middle), 12)


@pytest.mark.parametrize(
    "middle",
    [
        lambda m, h: h * m.w + m.b,
        lambda m, h: (h - m.b) / (m.w + 2),
        lambda m, h: torch.addcmul(h, h, m.w, value=0.5),
        lambda m, h: torch.where(h > m.b, h, -0.1 * h),
        lambda m, h: torch.maximum(h, m.b) + torch.minimum(h, m.w),
        lambda m, h: torch.lerp(h, m.b, 0.3),
        lambda m, h: h * m.w.reshape(1, 1, -1) + m.b.unsqueeze(0),
    ],
)
def test_parameters_per_channel_are_carried(middle) -> None:
    spaces = shrinks(linear(middle, w=torch.rand(12), b=torch.rand(12)), 12)
    assert {"w", "b"} & set(made_by_first(spaces).carriers)


@pytest.mark.parametrize(
    "middle",
    [
        lambda _, h: h.clamp(min=-0.5, max=0.5) ** 2,
        lambda _, h: h.masked_fill(h < 0, 0.25),
        lambda _, h: 1 - h.to(torch.float64).clone(),
    ],
)
def test_numbers(middle) -> None:
    shrinks(linear(middle), 12)


def test_slope_per_channel() -> None:
    shrinks(convolution(lambda m, h: F.prelu(h, m.w), w=torch.rand(12)), 12)


def test_product_of_two_producers_is_one_space() -> None:
    def middle(m, h):
        return h * torch.sigmoid(F.linear(h.mean(1, keepdim=True), m.w))

    shrinks(linear(middle, w=torch.randn(12, 12)), 12)


def test_numbers_that_no_weight_makes_freeze() -> None:
    case = linear(lambda _, h: h * torch.arange(12, dtype=h.dtype))
    freezes(case, "aten.mul combines its channels with values that cannot shrink")


def test_a_constant_everywhere_does_not_freeze() -> None:
    shrinks(linear(lambda _, h: h + torch.ones_like(h) * 0.5), 12)
