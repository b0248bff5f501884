"""Activations are recognised with their bounds, and computed as the network does."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from interpress.graph.activations import Activation, activation_of, swish_of
from interpress.graph.capture import capture

Function = Callable[[Tensor], Tensor]
Z = torch.linspace(-9, 9, 181)
BOUNDED: list[tuple[Function, tuple[float, float]]] = [
    (torch.relu, (0.0, math.inf)),
    (torch.relu_, (0.0, math.inf)),
    (F.relu6, (0.0, 6.0)),
    (nn.ReLU6(inplace=True), (0.0, 6.0)),
    (F.hardtanh, (-1.0, 1.0)),
    (lambda x: F.hardtanh(x, -2.0), (-2.0, 1.0)),
    (F.hardsigmoid, (-3.0, 3.0)),
    (lambda x: x.clamp(0, 6), (0.0, 6.0)),
    (lambda x: x.clamp(min=-1), (-1.0, math.inf)),
    (lambda x: x.clamp(max=4), (-math.inf, 4.0)),
    (lambda x: torch.clamp(x, min=0.5, max=2.0), (0.5, 2.0)),
]
SMOOTH: list[Function] = [
    F.silu, nn.SiLU(inplace=True), F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.hardswish,
    torch.sigmoid, torch.tanh, lambda x: F.leaky_relu(x, 0.2), F.elu, F.selu, F.celu, F.mish,
    lambda x: F.softplus(x, 2.0),
]  # fmt: skip


class Layer(nn.Module):
    """A linear layer and a function of its output."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(3, 4), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.linear(x))


def activation(function: Function) -> Activation | None:
    *_, last = capture(Layer(function).eval(), torch.randn(2, 3)).operators()
    return activation_of(last)


@pytest.mark.parametrize(("function", "bounds"), BOUNDED)
def test_activations_that_are_linear_between_two_bounds(
    function: Function, bounds: tuple[float, float]
) -> None:
    found = activation(function)
    assert found is not None
    assert found.bounds == bounds
    values = Z.clone()
    torch.testing.assert_close(found.apply(values), function(Z.clone()))
    assert torch.equal(values, Z)  # also where the network computes in place
    outside = (
        found.apply(torch.tensor([bounds[0] - 1, bounds[0]])),
        found.apply(torch.tensor([bounds[1], bounds[1] + 1])),
    )
    for values, bound in zip(outside, bounds, strict=True):
        assert math.isinf(bound) or values[0] == values[1]


@pytest.mark.parametrize("function", SMOOTH)
def test_other_activations_have_no_bounds(function: Function) -> None:
    found = activation(function)
    assert found is not None
    assert found.bounds is None
    values = Z.clone()
    torch.testing.assert_close(found.apply(values), function(Z.clone()))
    assert torch.equal(values, Z)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.softmax(x, -1),
        lambda x: x + 1,
        lambda x: F.layer_norm(x, (4,)),
        lambda x: torch.clamp(x, min=x.mean(), max=x.max()),  # bounds that are computed
    ],
)
def test_operators_that_are_not_activations(function: Function) -> None:
    assert activation(function) is None


@pytest.mark.parametrize(
    ("function", "is_swish"),
    [
        (lambda x: x * x.sigmoid(), True),
        (lambda x: x.sigmoid() * x, True),
        (lambda x: x * x.tanh(), False),
        (lambda x: x * x.sigmoid() + x, False),
        (lambda x: (x.sigmoid() + 1) * x, False),
        (lambda x: x * (1 + x).sigmoid(), False),
    ],
)
def test_a_product_with_the_own_sigmoid_is_a_swish(function: Function, is_swish: bool) -> None:
    program = capture(Layer(function).eval(), torch.randn(2, 3))
    linear, *_ = program.operators()
    product = swish_of(linear)
    assert (product is not None) == is_swish
    if product is not None:
        assert product is list(program.operators())[-1]
