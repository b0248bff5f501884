"""Spaces that the model's code cannot shrink are frozen, or merged with others."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from interpress import find_spaces
from interpress.dryrun.shapes import ShapeTrial
from interpress.graph.capture import capture
from interpress.spaces.from_program import spaces_of
from interpress.surgery.shrink import shrink


class Fixed(nn.Module):
    """Uses a literal width in its code."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 12), nn.Linear(12, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x).view(-1, 3, 4).relu().reshape(-1, 12)
        return self.c(self.b(h).relu())


def test_code_that_cannot_run_narrower_freezes_only_its_space() -> None:
    spaces = find_spaces(nn.Sequential(nn.Identity(), Fixed()), torch.randn(5, 4))
    assert "the code of 1 fails with fewer channels (RuntimeError" in str(spaces["1.a"].frozen)
    assert spaces["1.b"].frozen is None


def test_all_instances_of_a_class_are_frozen_alike() -> None:
    model = nn.Sequential(Fixed(), nn.Linear(2, 4), Fixed())
    spaces = ShapeTrial(spaces_of(capture(model, torch.randn(5, 4)))).settle()
    assert spaces["0.a"].frozen == spaces["2.a"].frozen
    assert "fails with fewer channels" in str(spaces["0.a"].frozen)
    assert [space.name for space in spaces.shrinkable] == ["0.b", "0.c", "1", "2.b"]


class Split(nn.Module):
    """Makes two branches by one layer and stores their width, on request as a literal."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.a, self.b = nn.Linear(4, 2 * width), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.a(x).split(self.width, -1)
        return self.b(first.relu() * second.sigmoid())


def test_an_integer_attribute_follows_its_size() -> None:
    spaces = ShapeTrial(spaces_of(capture(Split(6), torch.randn(5, 4)))).settle()
    assert [space.name for space in spaces.shrinkable] == ["a"]
    choices = {slot.attribute: source for slot, source in spaces.choices.items()}
    assert choices["width"] is not None
    space = spaces["a"]
    small = shrink(spaces, {"a": range(space.step)})
    assert small.width == 1


class SharedHeadDim(nn.Module):
    """Stores one `head_dim` for keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.head_dim = 6
        self.q, self.k, self.v = (nn.Linear(8, 12) for _ in range(3))
        self.o = nn.Linear(12, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            f(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        y = (q @ k.mT * 0.4).softmax(-1) @ v
        return self.o(y.transpose(1, 2).flatten(2))


def test_spaces_that_share_an_integer_become_one() -> None:
    found = spaces_of(capture(SharedHeadDim(), torch.randn(3, 5, 8)))
    assert {space.name for space in found.shrinkable} == {"k", "v", "k:heads"}
    spaces = ShapeTrial(found).settle()
    assert {space.name for space in spaces.shrinkable} == {"k", "k:heads"}
    assert spaces["k"].size == found["k"].size + found["v"].size
