"""Taps are found where a weight can absorb `T`; otherwise the reason is given."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.surgery.every_way import shrinks_every_way
from torch import Tensor, nn

from interpress.graph.capture import capture
from interpress.spaces.from_program import spaces_of


class Attention(nn.Module):
    """One head; `between` is applied to the query and to the key."""

    def __init__(self, between: nn.Module) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.between(self.q(x)), self.between(self.k(x)), self.v(x)
        return self.o((q @ k.mT * 0.3).softmax(-1) @ v)


def test_the_weight_and_bias_of_the_query_absorb_for_the_key() -> None:
    spaces = spaces_of(capture(Attention(nn.Identity()), torch.randn(2, 5, 8)))
    (tap,) = (spaces.taps[name] for name in spaces["k"].taps)
    assert tap.of_activations
    assert [(a.weight, a.dim) for a in tap.absorbers] == [("q.weight", 0), ("q.bias", 0)]
    assert set(spaces["k"].consumers) == {"q.weight", "q.bias"}
    (tap,) = (spaces.taps[name] for name in spaces["v"].taps)
    assert not tap.of_activations
    assert [(a.weight, a.dim) for a in tap.absorbers] == [("o.weight", 1)]


def test_what_stands_between_a_read_and_a_weight_is_named() -> None:
    spaces = spaces_of(capture(Attention(nn.Tanh()), torch.randn(2, 5, 8)))
    reason = "aten.tanh at between stands between it and a weight that could absorb T"
    assert any(space.frozen == reason for space in spaces if "k.weight" in space.producers)
    assert spaces["v"].frozen is None


def test_flattened_positions_are_repeats_of_a_column() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6, 2))
    spaces = spaces_of(capture(model, torch.randn(2, 3, 2, 3)))
    (tap,) = (spaces.taps[name] for name in spaces["0"].taps)
    (site,), (absorber,) = tap.sites, tap.absorbers
    assert tap.size == 4
    assert site.positions.tolist() == [[6 * c + r for c in range(4)] for r in range(6)]
    assert absorber.column.tolist() == [i // 6 for i in range(24)]
    assert absorber.repeat.tolist() == [i % 6 for i in range(24)]


def test_a_layer_that_is_called_twice_has_one_tap() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(F.relu(self.a(self.b(F.relu(self.a(x))))))

    spaces = spaces_of(capture(Twice(), torch.randn(3, 4)))
    (tap,) = (spaces.taps[name] for name in spaces["a"].taps)
    assert len(tap.sites) == 2
    assert [(a.weight, a.dim) for a in tap.absorbers] == [("b.weight", 1)]


def test_in_place_dropout_is_followed() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(inplace=True), nn.Linear(8, 3))
    spaces = shrinks_every_way(model, torch.randn(3, 4))
    assert [space.name for space in spaces.shrinkable] == ["0"]
