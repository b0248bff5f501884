"""The table of spaces fits a terminal and says everything about each space."""

from __future__ import annotations

import torch
from tests.zoo import residual
from torch import nn

from interpress.graph.capture import capture
from interpress.spaces.from_program import spaces_of


def test_the_table_fits_a_terminal_and_says_everything() -> None:
    model = residual.ResNet(residual.BasicBlock, (2, 2))
    spaces = spaces_of(capture(model, torch.randn(3, 3, 16, 16)))
    text = str(spaces)
    assert max(len(line) for line in text.splitlines()) <= 80
    words = " ".join(text.split())
    for word in ("space", "size", "FLOPs", "stem.0", "frozen: it is an output of the model"):
        assert word in words
    assert "6 spaces can shrink, 1 is frozen; 100% of" in words
    assert "FLOPs per example depend on the spaces that can shrink." in words
    assert repr(spaces) == (
        "Spaces(ResNet: 6 can shrink, 1 frozen, 100% of the FLOPs depend on those that can shrink)"
    )


def test_a_network_with_nothing_to_shrink() -> None:
    spaces = spaces_of(capture(nn.Linear(4, 3), torch.randn(2, 4)))
    assert "0 spaces can shrink" in str(spaces)


def test_a_step_is_shown_beside_the_size() -> None:
    model = nn.Sequential(nn.Conv1d(3, 6, 1), nn.ReLU(), nn.Conv1d(6, 4, 1, groups=2))
    spaces = spaces_of(capture(model, torch.randn(2, 3, 5)))
    (row,) = (line.split() for line in str(spaces).splitlines() if line.split()[:1] == ["0"])
    assert row[1] == "6/2"
