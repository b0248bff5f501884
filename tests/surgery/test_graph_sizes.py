"""Sizes in the nodes of graph modules follow the widths: traced models and exported programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.surgery.every_way import shrinkable_names, shrinks_every_way
from torch import Tensor, fx, nn
from torch.export import Dim, export

from interpress import find_spaces
from interpress.surgery.graph_sizes import changed_integers, integers_of, set_integers
from interpress.surgery.shrink import shrink


class Literals(nn.Module):
    """Has sizes of every kind as numbers in its code."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(3, 12, 3), nn.Parameter(torch.randn(12, 1, 3, 3))
        self.left, self.right = nn.Conv2d(4, 10, 1), nn.Conv2d(8, 10, 1)
        self.out = nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = F.conv2d(self.stem(x).relu(), self.depthwise, None, 1, 1, 1, 12)
        first, second = torch.split(F.group_norm(h, 12), [4, 8], 1)
        both = torch.cat([first, second.sigmoid()], 1)
        h = self.left(both[:, :4]) + self.right(both[:, -8:])
        h = h.flatten(2).unflatten(1, (10, 1)) * torch.ones(10, 1, 1).to(h)
        return self.out(h.mean((2, 3)))


class Attention(nn.Module):
    """Attention over five tokens, with the numbers of heads and dims in its code."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(6, 48), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(-1, 5, 3, 4, 4).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, 5, 16))


class Flattened(nn.Module):
    """A product of flattened rows, as GPT-2 writes its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w2 = nn.Parameter(torch.randn(6, 12)), nn.Parameter(torch.randn(12, 4))
        self.b1, self.b2 = nn.Parameter(torch.randn(12)), nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.addmm(self.b1, x.view(-1, 6), self.w1).view(-1, 5, 12).relu()
        return torch.addmm(self.b2, h.view(-1, 12), self.w2).view(-1, 5, 4)


def traced(model: nn.Module, x: Tensor) -> fx.GraphModule:
    return fx.symbolic_trace(model)


def exported(model: nn.Module, x: Tensor) -> fx.GraphModule:
    program = export(model.eval(), (x,), dynamic_shapes=({0: Dim.AUTO},), strict=False)
    return program.module(check_guards=False)  # type: ignore[return-value]


def inside(model: nn.Module, x: Tensor) -> nn.Module:
    """Return a model that a traced one is a part of."""
    return nn.Sequential(nn.Identity(), fx.symbolic_trace(model))


CASES = [
    (Literals, (16, 3, 8, 8), {"stem", "left"}),
    (Attention, (3, 5, 6), {"qkv", "qkv:heads"}),
    (Flattened, (3, 5, 6), {"w1"}),
]


@pytest.mark.parametrize("make", [traced, exported, inside])
@pytest.mark.parametrize(("kind", "shape", "names"), CASES)
def test_all_spaces_shrink(
    kind: type[nn.Module],
    shape: tuple[int, ...],
    names: set[str],
    make: Callable[[nn.Module, Tensor], nn.Module],
) -> None:
    torch.manual_seed(0)
    model, x = kind().double().eval(), torch.randn(*shape).double()
    spaces = shrinks_every_way(make(model, x), x)
    assert {name.removeprefix("1.") for name in shrinkable_names(spaces)} >= names, spaces


def test_numbers_that_are_not_sizes_do_not_change() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.o = nn.Linear(5, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.o(self.a(x).view(-1, 8).relu() * 8) / 8

    model = fx.symbolic_trace(Net().double())
    spaces = shrinks_every_way(model, torch.randn(4, 5))
    small = shrink(spaces, {"a": [0, 4, 5]})
    integers = {n.name: integers_of(n) for n in small.graph.nodes}  # type: ignore[union-attr]
    assert integers["view"] == [-1, 3]
    assert integers["mul"] == integers["truediv"] == [8]


def test_changed_numbers_are_listed_and_can_be_set() -> None:
    torch.manual_seed(0)
    model = fx.symbolic_trace(Attention().eval())
    spaces = find_spaces(model, torch.randn(3, 5, 6))
    small = shrink(spaces, {"qkv:heads": [1, 3]})
    changed = changed_integers(model, small)
    assert [-1, 5, 3, 2, 4] in changed.values()
    set_integers(small, {key: integers_of(node_of(model, key[1])) for key in changed})
    assert not changed_integers(model, small)


def node_of(model: fx.GraphModule, name: str) -> fx.Node:
    return next(node for node in model.graph.nodes if node.name == name)
