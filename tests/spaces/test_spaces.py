"""Spaces are a sequence with names, and can be frozen and merged."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from interpress import ArgumentError, find_spaces
from interpress.graph.capture import capture
from interpress.spaces.from_program import spaces_of
from interpress.spaces.spaces import Spaces


def spaces() -> Spaces:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    return spaces_of(capture(model, torch.randn(2, 4)))


def test_spaces_are_a_sequence_with_names() -> None:
    found = spaces()
    assert len(found) == 3
    assert found[0] is found["0"]
    assert [space.name for space in found] == found.names == ["0", "2", "4"]
    assert found.index(found["2"]) == 1
    assert [space.name for space in found.shrinkable] == ["0", "2"]
    assert [space.name for space in found.frozen] == ["4"]
    with pytest.raises(ArgumentError, match=r"no space 'nope'; the spaces are 0, 2, 4"):
        found["nope"]


def test_freezing_keeps_an_earlier_reason() -> None:
    found = spaces()
    again = found.freeze({"0": "first"}).freeze({"0": "second", "2": "third"})
    assert [space.frozen for space in again] == ["first", "third", "it is an output of the model"]
    assert found["0"].frozen is None


def test_tied_spaces_become_one() -> None:
    tied = spaces().tied(["2", "0"])
    assert tied.names == ["0", "4"]
    assert (tied["0"].size, tied["0"].step) == (10, 5)
    assert tied["0"].producers == ("0.weight", "2.weight")
    assert tied.cost({"0": 5}).parameters == 4 * 3 + 3 + 3 * 2 + 2 + 2 * 3 + 3


def test_layers_used_only_in_training_are_reported() -> None:
    class Auxiliary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.o, self.aux = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
            h = self.a(x).relu()
            return (self.o(h), self.aux(h)) if self.training else self.o(h)

    found = find_spaces(Auxiliary(), torch.randn(3, 4))
    assert found.unused == ("aux.weight", "aux.bias")
    words = " ".join(str(found).split())
    assert "2 parameters are not used in evaluation mode (aux.weight, aux.bias)" in words
