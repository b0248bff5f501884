"""Examples that two sets of data have in common."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from interpress.data.calibration_set import CalibrationSet
from interpress.data.example_hashes import as_text, find_copies, from_text, hashes_of


def counted(calibration: object, evaluation: object, model: nn.Module | None = None) -> int:
    model = model or nn.Linear(4, 2)
    known = hashes_of(CalibrationSet(calibration, model))
    return find_copies(known, CalibrationSet(evaluation, model)).in_common


def test_equal_examples_are_counted_wherever_they_are() -> None:
    x = torch.randn(300, 4)
    new = torch.randn(50, 4)
    assert counted(x, new) == 0
    assert counted(x, torch.cat([new, x[:20].flip(0), new])) == 20
    assert counted(list(x.split(7)), [(x[10:15], torch.arange(5))]) == 5  # labels do not count
    assert counted(x, x.double()) == 300  # as the model takes them
    changed = x.clone()
    changed[:, 3] += 1e-3
    assert counted(x, changed) == 0


def test_all_inputs_count() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return self.layer(a) + self.layer(b)

    a, b = torch.randn(20, 4), torch.randn(20, 4)
    assert counted({"a": a, "b": b}, {"a": a, "b": b}, Two()) == 20
    assert counted({"a": a, "b": b}, {"a": a, "b": b.flip(0)}, Two()) == 0


def test_copies_of_an_example_count_once() -> None:
    x, model = torch.randn(30, 4), nn.Linear(4, 2)
    repeated = torch.cat([x, x[:1].expand(20, 4)])
    hashes = hashes_of(CalibrationSet(x[:10], model))
    assert find_copies(hashes, CalibrationSet(repeated, model)) == (30, 30)


def test_hashes_are_the_same_after_they_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = hashes_of(CalibrationSet(torch.randn(30, 4), nn.Linear(4, 2)))
    assert from_text(as_text(hashes * 2)) == set(hashes)
    assert from_text(as_text([])) == set()
    monkeypatch.setattr("interpress.data.example_hashes._MOST", 29)
    assert as_text(hashes) is None
    assert from_text(None) is None
