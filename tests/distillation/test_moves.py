"""Shifts and flips of inputs: only those that the original hardly notices."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from interpress.distillation.moves import harmless_moves, moved_inputs, with_moves
from interpress.distillation.output_loss import OutputLoss
from interpress.distillation.pair import Pair
from interpress.evaluation.output_meaning import find_meaning
from interpress.graph.example import Example


class Average(nn.Module):
    """Scores from the mean over all positions: no shift or flip matters much."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scores = nn.Linear(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(x.mean(dim=(2, 3)))


class Top(nn.Module):
    """Scores from the first rows: columns may move, rows may not."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scores = nn.Linear(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.zeros(16, 1)
        weights[0] = 1.0
        return self.scores((x * weights).sum(2).mean(2))


def names(model: nn.Module, example: Example) -> list[str]:
    meaning = find_meaning(model, example)
    wanted = [tensor.detach() for tensor in [example.call(model)]]
    pair = Pair(model, model, meaning, OutputLoss(meaning, [wanted]), len(example.args[0]))

    def difference(one: Example, other: Example) -> Tensor:
        return pair.loss(pair.wanted(one), pair.wanted(other), one)

    return [move.name for move in harmless_moves([example], difference)]


def images(count: int = 60, channels: int = 3) -> Example:
    """Images whose channels differ in brightness, as those of real data."""
    generator = torch.Generator().manual_seed(0)
    levels = torch.randn(count, channels, 1, 1, generator=generator)
    return Example.of(levels + 0.3 * torch.randn(count, channels, 16, 16, generator=generator))


def test_a_network_that_averages_allows_all_moves() -> None:
    assert names(Average(), images()) == [
        "shifted along dim 2", "shifted along dim 3", "flipped along dim 2", "flipped along dim 3",
    ]  # fmt: skip


def test_a_network_that_looks_at_the_top_allows_no_move_of_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, 16, 1, generator=generator).expand(60, 3, 16, 16).contiguous()
    assert names(Top(), Example.of(x)) == ["shifted along dim 3", "flipped along dim 3"]


def test_tables_tokens_masks_and_pairs_of_inputs_do_not_move() -> None:
    assert moved_inputs(Example.of(torch.randn(8, 5))) == []
    assert moved_inputs(Example.of(torch.zeros(8, 5, 5, dtype=torch.long))) == []
    x = torch.randn(8, 4, 5)
    assert moved_inputs(Example((x,), masks=(torch.ones(8, 4, dtype=torch.bool),))) == []
    assert harmless_moves([Example.of((x, x + 1))], lambda a, b: torch.zeros(8)) == []


def test_every_example_is_shifted_by_its_own_distance() -> None:
    x = torch.arange(32.0).expand(64, 1, 32).contiguous()
    (move,) = [
        move
        for move in harmless_moves([Example.of(x)], lambda a, b: torch.zeros(64))
        if move.name == "shifted along dim 2"
    ]
    generator = torch.Generator().manual_seed(0)
    moved = with_moves(Example.of(x), [move], generator).args[0]
    steps = moved[:, 0].diff(dim=1)
    assert bool(((steps == 0) | (steps == 1)).all())  # the edge is repeated
    distances = moved[:, 0, 16] - 16
    assert set(distances.abs().tolist()) == {0.0, 1.0, 2.0, 3.0, 4.0}
    assert moved.shape == x.shape


def test_about_half_of_the_examples_are_flipped() -> None:
    x = torch.arange(6.0).expand(100, 2, 6).contiguous()
    moves = harmless_moves([Example.of(x)], lambda a, b: torch.zeros(100))
    (flip,) = [move for move in moves if move.name == "flipped along dim 2"]
    moved = with_moves(Example.of(x), [flip], torch.Generator().manual_seed(0)).args[0]
    flipped = (moved[:, 0, 0] == 5).sum()
    assert 30 < int(flipped) < 70
    assert bool(((moved[:, 0, 0] == 5) | (moved[:, 0, 0] == 0)).all())
