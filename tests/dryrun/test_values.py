"""Code that runs with fewer channels but computes something else is found and frozen."""

from __future__ import annotations

import pytest
import torch
from tests.surgery.every_way import shrinkable_names, shrinks_every_way
from torch import Tensor, nn

from interpress import DataError, find_spaces


def test_code_that_depends_on_the_width_is_frozen() -> None:
    class DividesByWidth(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 12), nn.Linear(12, 8), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            return self.c(self.b(h.relu() / h.shape[-1]).relu())

    spaces = find_spaces(DividesByWidth(), torch.randn(5, 4))
    assert "cannot be proved (difference" in str(spaces["a"].frozen)
    assert spaces["b"].frozen is None


def test_spaces_that_hold_alone_but_not_together() -> None:
    class DividesByLargerWidth(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(4, 8)
            self.o, self.p = nn.Linear(8, 3), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            a, b = self.a(x).relu(), self.b(x).relu()
            return (self.o(a) + self.p(b)) / max(a.shape[-1], b.shape[-1])

    assert len(shrinks_every_way(DividesByLargerWidth(), torch.randn(5, 4)).shrinkable) <= 1


def test_outputs_with_nan_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        model[2].bias.fill_(float("nan"))
    with pytest.raises(DataError, match=r"holds NaN.*check the model's weights"):
        find_spaces(model, torch.randn(3, 4))


def test_weights_that_are_zero_do_not_hide_mistakes() -> None:
    class Zero(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.o = nn.Linear(4, 8), nn.Linear(8, 4), nn.Linear(4, 3)
            self.gamma = nn.Parameter(torch.zeros(4))
            nn.init.zeros_(self.o.weight)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x).relu()
            return self.o(x + self.gamma * self.b(h / h.shape[-1]))

    spaces = find_spaces(Zero(), torch.randn(3, 4))
    assert "cannot be proved" in str(spaces["a"].frozen)


@pytest.mark.parametrize("seed", range(4))
def test_small_activations_do_not_hide_mistakes(seed: int) -> None:
    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before = nn.Sequential(*(nn.Linear(6, 6, bias=False) for _ in range(4)))
            self.a, self.d = nn.Linear(6, 10, bias=False), nn.Linear(10, 6, bias=False)
            self.f = nn.Linear(6, 3)
            for parameter in self.parameters():
                nn.init.normal_(parameter, std=0.002)

        def forward(self, x: Tensor) -> Tensor:
            y = self.a(self.before(x)).relu()
            return self.f(x + self.d(y * y.shape[-1] ** -0.5))

    torch.manual_seed(seed)
    assert "cannot be proved" in str(find_spaces(Small(), torch.randn(3, 6))["a"].frozen)


class Deep(nn.Module):
    """Many layers with small weights: with noise added, biases outweigh all that varies.

    Layer 20 is divided by its width."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 24), *(nn.Linear(24, 24) for _ in range(40))])
        self.last = nn.Linear(24, 2)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.03)

    def forward(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.layers):
            x = nn.functional.hardswish(layer(x))
            if index == 20:
                x = x / x.shape[-1]
        return self.last(x)


class Squeezed(nn.Module):
    """An inverted residual with squeeze and excitation, as in MobileNetV3."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        wide = 2 * channels
        self.expand = nn.Sequential(nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide))
        self.spatial = nn.Conv2d(wide, wide, 3, padding=1, groups=wide)
        self.squeeze, self.excite = nn.Conv2d(wide, channels, 1), nn.Conv2d(channels, wide, 1)
        self.project = nn.Conv2d(wide, channels, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.spatial(nn.functional.hardswish(self.expand(x)))
        pooled = nn.functional.adaptive_avg_pool2d(x, 1)
        return self.project(x * nn.functional.hardsigmoid(self.excite(self.squeeze(pooled).relu())))


def test_a_deep_network_that_hardly_depends_on_its_input_can_shrink() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), *(Squeezed(8) for _ in range(6)))
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.03)
    spaces = find_spaces(model, torch.rand(2, 3, 8, 8))
    assert [space.name for space in spaces.frozen] == ["6.project"]  # it is the output


def test_a_mistake_in_a_deep_network_is_noticed() -> None:
    torch.manual_seed(0)
    spaces = find_spaces(Deep(), torch.randn(4, 3))
    assert [space.name for space in spaces.frozen] == ["layers.20", "last"]


def test_attentions_with_a_stored_and_a_computed_scale() -> None:
    class Attention(nn.Module):
        def __init__(self, stored: bool) -> None:
            super().__init__()
            self.heads, self.stored = 2, stored
            self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (
                f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for f in (self.q, self.k, self.v)
            )
            scale = 0.5 if self.stored else k.shape[-1] ** -0.5
            y = (q @ k.transpose(-1, -2) * scale).softmax(-1) @ v
            return x + self.o(y.transpose(1, 2).flatten(2))

    torch.manual_seed(0)
    model = nn.Sequential(Attention(True), Attention(False))
    spaces = shrinks_every_way(model, torch.randn(3, 5, 8))
    assert {"0.k", "1.k", "0.v", "1.v"} <= shrinkable_names(spaces)
    assert spaces.rescaled == set(spaces["1.k"].taps)


def test_as_many_heads_as_dims_per_head() -> None:
    class Square(nn.Module):
        """Four heads of four dims: only values tell which size `number` is."""

        def __init__(self) -> None:
            super().__init__()
            self.number = 4
            self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (
                f(x).unflatten(-1, (self.number, -1)).transpose(1, 2)
                for f in (self.q, self.k, self.v)
            )
            y = (q @ k.mT * 0.5).softmax(-1) @ v
            return self.o(y.transpose(1, 2).flatten(2))

    torch.manual_seed(0)
    spaces = shrinks_every_way(Square(), torch.randn(3, 5, 16))
    assert shrinkable_names(spaces) >= {"k", "v"}
