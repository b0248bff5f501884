"""The table of spaces fits a terminal and says everything about each space."""

from __future__ import annotations

import re

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
    for word in ("space", "size", "of FLOPs", "stem.0", "frozen: it is an output of the model"):
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


def test_the_legend_explains_what_is_shown_and_nothing_else() -> None:
    plain = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    text = " ".join(str(spaces_of(capture(plain, torch.randn(2, 4)))).split())
    assert "of FLOPs: the share of all FLOPs that depend on the size of the space." in text
    assert "add up to more than 100%" in text
    assert "a multiple of" not in text
    assert "more module" not in text
    grouped = nn.Sequential(nn.Conv1d(3, 6, 1), nn.ReLU(), nn.Conv1d(6, 4, 1, groups=2))
    text = " ".join(str(spaces_of(capture(grouped, torch.randn(2, 3, 5)))).split())
    assert "size 6/2: 6 channels, of which a multiple of 2 can be kept." in text
    model = residual.ResNet(residual.BasicBlock, (2, 2))
    text = " ".join(str(spaces_of(capture(model, torch.randn(3, 3, 16, 16)))).split())
    shown = re.search(r" (\+\d+) ", text)
    assert shown is not None
    assert f"{shown[1]}: {shown[1][1:]} more module" in text
