"""Integer attributes of a model's own modules follow the sizes they describe."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.surgery.every_way import shrinks_every_way
from torch import Tensor, nn

from interpress.surgery.shrink import shrink
from interpress.surgery.size_attributes import (
    Slot,
    find_candidates,
    names_a_size,
    observe_sizes,
    read,
    write,
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.o = nn.Linear(5, 8), nn.Linear(8, 3)
        self.max_len, self.temperature, self.hidden_dim = 8, 8, 8

    def forward(self, x: Tensor) -> Tensor:
        return self.o(self.a(x).relu()) / self.temperature


def test_integers_that_are_not_sizes_do_not_change() -> None:
    spaces = shrinks_every_way(Net(), torch.randn(4, 5))
    small = shrink(spaces, {"a": [0, 4, 5]})
    assert (small.max_len, small.temperature, small.hidden_dim) == (8, 8, 3)


def test_sizes_before_and_after_a_cut() -> None:
    spaces = shrinks_every_way(Net(), torch.randn(4, 5))
    sizes = observe_sizes(spaces, {"a": 3})
    weight = sizes["a"][("weight", "weight", 0)]
    assert (weight.before, weight.after) == (8, 3)
    assert weight.spaces == {spaces.index(spaces["a"])}
    assert sizes["a"][("weight", "weight", 1)].after == 5
    slots = {candidate.slot.attribute for candidate in find_candidates(spaces, sizes, ())}
    assert {"max_len", "temperature", "hidden_dim"} <= slots


def test_slots_are_read_and_written() -> None:
    module = nn.Module()
    module.width, module.shape, module.text = 8, (4, 8), "8"
    width, second = Slot(nn.Module, "width", None), Slot(nn.Module, "shape", 1)
    assert (read(module, width), read(module, second)) == (8, 8)
    assert read(module, Slot(nn.Module, "text", None)) is None
    assert read(module, Slot(nn.Module, "shape", 2)) is None
    write(module, width, 5)
    write(module, second, 6)
    assert (module.width, module.shape) == (5, (4, 6))


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [("num_heads", True), ("hidden_dim", True), ("d_model", True), ("c", True), ("nf", True),
     ("max_len", False), ("temperature", False), ("stride", False)],
)  # fmt: skip
def test_names_that_suggest_a_size(attribute: str, expected: bool) -> None:
    assert names_a_size(Slot(nn.Module, attribute, None)) == expected


class TwoAttentions(nn.Module):
    """Two attentions in one module that stores one number of heads, or of dims, for both."""

    def __init__(self, heads: int, dims: int, by: str) -> None:
        super().__init__()
        self.number = heads if by == "heads" else dims
        self.by = by
        width = heads * dims
        self.layers = nn.ModuleList(nn.Linear(8, width) for _ in range(6))
        self.o, self.p = nn.Linear(width, 8), nn.Linear(width, 8)

    def forward(self, x: Tensor) -> Tensor:
        def split(t: Tensor) -> Tensor:
            sizes = (self.number, -1) if self.by == "heads" else (-1, self.number)
            return t.unflatten(-1, sizes).transpose(1, 2)

        for start, out in ((0, self.o), (3, self.p)):
            q, k, v = (split(layer(x)) for layer in self.layers[start : start + 3])
            x = x + out(
                F.scaled_dot_product_attention(q, k, v, scale=0.5).transpose(1, 2).flatten(2)
            )
        return x


@pytest.mark.parametrize("by", ["heads", "dims"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_one_integer_for_two_attentions(count: int, by: str) -> None:
    torch.manual_seed(count)
    heads, dims = (count, 6) if by == "heads" else (3, count)
    shrinks_every_way(TwoAttentions(heads, dims, by), torch.randn(3, 5, 8))
