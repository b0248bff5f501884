"""Channels are grouped into spaces with equal cells, and heads into spaces of their own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.surgery.every_way import shrinkable_names, shrinks_every_way
from torch import Tensor, nn

from interpress.graph.capture import capture
from interpress.spaces.from_program import spaces_of
from interpress.spaces.grouping import Draft


def test_the_step_keeps_the_same_share_of_every_cell() -> None:
    assert Draft([0, 1, 2, 3]).step == 1
    assert Draft([0, 1, 2, 3], cells=[0, 0, 1, 1]).step == 2
    assert Draft(list(range(6)), cells=[0, 0, 0, 0, 1, 1]).step == 3
    assert Draft(list(range(5)), cells=[0, 0, 0, 1, 1]).step == 5


@pytest.mark.parametrize("layout", ["(d h)", "3 (d h)", "(h d)"])
def test_layouts_of_heads(layout: str) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.d, self.heads = 6, 2
            self.qkv, self.o = nn.Linear(8, 36), nn.Linear(12, 8)

        def forward(self, x: Tensor) -> Tensor:
            b, n, _ = x.shape
            if layout == "3 (d h)":
                q, k, v = self.qkv(x).view(b, n, 3, self.d, self.heads).permute(2, 0, 4, 1, 3)
            else:
                sizes = (self.d, self.heads) if layout == "(d h)" else (self.heads, self.d)
                order = (0, 3, 1, 2) if layout == "(d h)" else (0, 2, 1, 3)
                q, k, v = (t.reshape(b, n, *sizes).permute(order) for t in self.qkv(x).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v)
            y = y.permute(0, 2, 1, 3) if layout == "(h d)" else y.permute(0, 2, 3, 1)
            return self.o(y.flatten(2))

    torch.manual_seed(0)
    spaces = shrinks_every_way(Net(), torch.randn(3, 5, 8))
    assert shrinkable_names(spaces) == {"qkv", "qkv:heads"}
    assert (spaces["qkv:heads"].size, spaces["qkv:heads"].heads) == (2, True)


@pytest.mark.parametrize("how", ["sum", "softmax and sum", "amax"])
def test_branches_that_are_combined_are_cells_of_one_space(how: str) -> None:
    class Selective(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.o = nn.Linear(4, 12), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x).unflatten(-1, (2, -1))
            if how == "amax":
                return self.o(h.amax(1))
            return self.o((h.softmax(1) * h if "softmax" in how else h.relu()).sum(1))

    assert shrinkable_names(shrinks_every_way(Selective(), torch.randn(5, 4))) == {"a"}


def test_groups_of_a_convolution_are_cells() -> None:
    model = nn.Sequential(nn.Conv1d(3, 6, 1), nn.ReLU(), nn.Conv1d(6, 4, 1, groups=2))
    space = spaces_of(capture(model, torch.randn(2, 3, 5)))["0"]
    assert (space.size, space.step, space.cells.tolist()) == (6, 2, [0, 0, 0, 1, 1, 1])


def test_blocks_that_cannot_keep_the_same_share_are_frozen() -> None:
    class Chunks(nn.Module):
        """Two layers of 3 and 5 channels, concatenated and cut into halves."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 5)
            self.o, self.p = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            first, second = torch.cat([self.a(x), self.b(x)], -1).relu().chunk(2, -1)
            return self.o(first) + self.p(second)

    spaces = spaces_of(capture(Chunks(), torch.randn(3, 4)))
    reasons = {str(s.frozen) for s in spaces if {"a.weight", "b.weight"} & set(s.producers)}
    assert "its blocks in aten.chunk cannot keep the same share" in reasons
    assert "None" not in reasons
