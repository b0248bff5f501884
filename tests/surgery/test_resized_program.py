"""The program of a smaller network, without capturing it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from interpress import find_spaces
from interpress.graph.example import Example
from interpress.graph.executor import Executor
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.resized_program import resized_program
from interpress.surgery.weights import shrunk_copy


class Viewed(nn.Module):
    """Splits its hidden layer by a constant of the program."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.hidden = nn.Linear(6, 12), nn.Linear(12, 3), 12

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).view(-1, 2, self.hidden // 2).flatten(1).relu())


def smaller_of(spaces: Spaces, width: int) -> tuple[Cut, nn.Module]:
    (space,) = spaces.shrinkable
    cut = Cut(spaces, {space.name: torch.arange(width) * (space.size // width)})
    return cut, shrunk_copy(cut)


def test_sizes_follow_the_cut_and_the_original_program_stays() -> None:
    torch.manual_seed(0)
    model, x = Viewed().eval(), torch.randn(5, 6)
    spaces = find_spaces(model, x[:2])
    cut, smaller = smaller_of(spaces, 6)
    program = resized_program(cut, smaller)
    (small,) = Executor(program).run(Example.of(x))
    (whole,) = Executor(spaces.program).run(Example.of(x))
    torch.testing.assert_close(small, smaller(x))
    torch.testing.assert_close(whole, model(x))
    assert [node.target for node in program.nodes] == [n.target for n in spaces.program.nodes]


def test_a_program_without_such_sizes_is_shared() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    spaces = find_spaces(model, torch.randn(2, 6))
    cut, smaller = smaller_of(spaces, 4)
    program = resized_program(cut, smaller)
    assert program.nodes is spaces.program.nodes
    assert program.model is smaller
