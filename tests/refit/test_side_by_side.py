"""Which layers are refitted while two networks run side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, fx, nn

import interpress
from interpress import find_spaces, shrink
from interpress.graph.example import Example
from interpress.refit.layer_pair import pairs_of, stretches
from interpress.refit.refit import actual_groups
from interpress.refit.side_by_side import SideBySide
from interpress.surgery.cut import Cut


class Branches(nn.Module):
    """One branch is cut, the other is not; the last layer is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.cut, self.behind = nn.Linear(8, 12), nn.Linear(12, 8)
        self.whole, self.after = nn.Linear(8, 10), nn.Linear(10, 8)
        self.twice = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        y = self.behind(self.cut(x).relu()) + self.after(self.whole(x).relu())
        return self.twice(self.twice(y).relu())


def walk_of(kept: dict[str, Tensor], x: Tensor) -> tuple[SideBySide, list[fx.Node]]:
    torch.manual_seed(0)
    spaces = find_spaces(Branches(), x[:4])
    cut, full = Cut(spaces, kept), spaces.program
    small = replace(full, model=shrink(spaces, kept))
    walk = SideBySide(cut, full, small, [Example.of(x)], None, 0, before=actual_groups)
    refitted = []
    for pairs in stretches(pairs_of(full, small), walk.begins_stretch):
        walk.run(pairs)
        refitted += [node for _, node in pairs if walk.begins_stretch(node)]
    return walk, refitted


def test_only_layers_that_changed_and_are_called_once_are_refitted() -> None:
    x = torch.randn(200, 6, generator=torch.Generator().manual_seed(1))
    walk, refitted = walk_of({"cut": torch.arange(0, 12, 2)}, x)
    assert [node.name for node in refitted] == ["linear_1", "linear_2"]  # `cut` and `behind`
    assert set(walk.errors) == {"cut.weight", "behind.weight"}
    before, after = walk.errors["behind.weight"]
    assert 0 < after < before
    before, after = walk.errors["cut.weight"]  # the kept outputs are right as they are
    assert before == after < 1e-9
    assert set(walk.new_weights) == {"behind.weight", "behind.bias"}
    assert walk.new_weights["behind.weight"].shape == (8, 6)


def test_nothing_is_refitted_if_nothing_was_cut() -> None:
    walk, refitted = walk_of({}, torch.randn(20, 6))
    assert refitted == []
    assert walk.errors == walk.new_weights == {}


class Queries(nn.Module):
    """Layers on learned queries, which are the same for all examples, are added to others."""

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(1, 5, 12))
        self.up, self.down = nn.Linear(12, 16), nn.Linear(16, 8)
        self.first, self.second, self.out = nn.Linear(6, 80), nn.Linear(16, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x).reshape(-1, 5, 16).relu())
        return self.out(torch.tanh(self.down(self.up(self.queries).relu()) + x)).flatten(1)


@pytest.mark.filterwarnings("ignore::interpress.FewExamplesWarning")
def test_a_sum_with_what_is_the_same_for_all_examples() -> None:
    torch.manual_seed(0)
    model, data = Queries().eval(), torch.randn(64, 6)
    result = interpress.compress(model, data, width=0.7)
    assert result.flops < 0.8
    assert result.model(data[:3]).shape == (3, 15)
    assert (result.model(data) - model(data)).norm() < 0.5 * model(data).norm()
