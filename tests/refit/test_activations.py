"""Refit in front of today's activations: recognised, and never worse than without the refit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import interpress
from interpress import Method, agreement
from interpress.graph.capture import capture
from interpress.graph.dense import dense_layer_of
from interpress.graph.patterns import epilogue_of

ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "relu": (nn.ReLU(), "aten.relu"),
    "silu": (nn.SiLU(), "aten.silu"),
    "silu in place": (nn.SiLU(inplace=True), "aten.silu"),
    "silu by hand": (lambda x: x * torch.sigmoid(x), "aten.silu"),
    "gelu": (nn.GELU(), "aten.gelu"),
    "gelu tanh": (nn.GELU(approximate="tanh"), "aten.gelu"),
    "relu6": (nn.ReLU6(), "aten.hardtanh"),
    "relu6 in place": (nn.ReLU6(inplace=True), "aten.hardtanh"),
    "clamp": (lambda x: x.clamp(0, 6), "aten.clamp"),
    "hardswish": (nn.Hardswish(), "aten.hardswish"),
    "hardsigmoid": (nn.Hardsigmoid(), "aten.hardsigmoid"),
    "sigmoid": (torch.sigmoid, "aten.sigmoid"),
    "tanh": (torch.tanh, "aten.tanh"),
    "leaky relu": (nn.LeakyReLU(0.1), "aten.leaky_relu"),
    "mish": (nn.Mish(), "aten.mish"),
}


class Convolutions(nn.Module):
    """Two convolutions with batch norms in front of one activation."""

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.act = activation
        self.a, self.b = nn.Conv2d(3, 20, 3), nn.Conv2d(20, 24, 3)
        self.norm_a, self.norm_b = nn.BatchNorm2d(20), nn.BatchNorm2d(24)
        self.head = nn.Linear(24, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm_b(self.b(self.act(self.norm_a(self.a(x))))))
        return self.head(x.mean((2, 3)))


class SqueezeExcite(nn.Module):
    """A convolution whose channels are gated by two small layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 24, 3), nn.BatchNorm2d(24)
        self.down, self.up = nn.Conv2d(24, 12, 1), nn.Conv2d(12, 24, 1)
        self.head = nn.Linear(24, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.norm(self.conv(x)))
        gate = self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))).sigmoid()
        return self.head((x * gate).mean((2, 3)))


class GatedMLP(nn.Module):
    """A product of two layers, one of them through a sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 24)
        self.gate, self.value = nn.Linear(24, 32), nn.Linear(24, 32)
        self.head = nn.Linear(32, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.first(x[:, :, :2, :2].flatten(1)))
        return self.head(self.gate(x).sigmoid() * self.value(x))


def settled(model: nn.Module, images: Tensor) -> nn.Module:
    """Return the network in evaluation mode, with the statistics of the images."""
    with torch.no_grad():
        for _ in range(30):
            model.train()(images[:200])
    return model.eval()


IMAGES, OTHERS = torch.randn(2, 300, 3, 8, 8, generator=torch.Generator().manual_seed(3))


def recognised(model: nn.Module) -> dict[str, str | None]:
    """Return per dense layer the activation behind it."""
    program = capture(model.eval(), IMAGES[:2])
    parameters = program.parameters()
    names: dict[str, str | None] = {}
    for node in program.operators():
        dense = dense_layer_of(program, node, parameters)
        if dense is not None:
            activation = epilogue_of(program, node, parameters).activation
            names[dense.weight.removesuffix(".weight")] = (
                None if activation is None else activation.name
            )
    return names


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_the_activation_behind_a_layer_is_recognised(kind: str) -> None:
    function, name = ACTIVATIONS[kind]
    assert recognised(Convolutions(function)) == {"a": name, "b": name, "head": None}
    program = capture(Convolutions(function).eval(), IMAGES[:2])
    layers = [
        epilogue_of(program, node, program.parameters()).activation
        for node in program.operators()
        if dense_layer_of(program, node, program.parameters()) is not None
    ]
    assert layers[0] is not None
    values = torch.linspace(-8, 8, 101)
    before = values.clone()
    torch.testing.assert_close(layers[0].apply(values), function(values.clone()))
    assert torch.equal(values, before)  # also of an activation in place


def test_gates_are_recognised() -> None:
    assert recognised(SqueezeExcite()) == {
        "conv": "aten.silu", "down": "aten.silu", "up": "aten.sigmoid", "head": None,
    }  # fmt: skip
    assert recognised(GatedMLP()) == {
        "first": "aten.gelu", "gate": "aten.sigmoid", "value": None, "head": None,
    }  # fmt: skip


KINDS = ("silu", "silu by hand", "gelu", "relu6", "hardswish", "sigmoid")
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    **{kind: partial(Convolutions, ACTIVATIONS[kind][0]) for kind in KINDS},
    "squeeze and excite": SqueezeExcite,
    "gated MLP": GatedMLP,
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_refit_is_better_on_held_out_rows_and_on_other_images(kind: str) -> None:
    torch.manual_seed(0)
    model = settled(NETWORKS[kind](), IMAGES)
    analysis = interpress.analyze(model, IMAGES, kind="regression", progress=False)
    plain = analysis.compress(flops=0.5, method=Method(refit=False), progress=False)
    result = analysis.compress(flops=0.5, progress=False)
    assert result.widths == plain.widths
    assert result.network.refit is not None
    assert len(result.network.refit.errors) >= 2
    for before, after in result.network.refit.errors.values():
        assert after <= before
    assert result.network.refit_kept or kind == "gated MLP"  # whose one layer is right as it is
    errors = []
    for network in (plain.model, result.model):
        error = agreement(model, network, OTHERS, kind="regression").output_error
        assert error is not None
        errors.append(error)
    assert errors[1] < errors[0] or not result.network.refit_kept
