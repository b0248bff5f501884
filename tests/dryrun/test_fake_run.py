"""Smaller copies run on tensors without values; failures name the running modules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from interpress.dryrun.fake_run import FakeTrial, TrialSlots
from interpress.graph.capture import capture
from interpress.graph.misfit import first_line
from interpress.spaces.from_program import spaces_of


class Fixed(nn.Module):
    """Uses a literal width in its code."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 12), nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).view(-1, 3, 4).relu().reshape(-1, 12))


def test_a_failure_names_the_modules_that_were_running() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(Fixed()))
    spaces = spaces_of(capture(model, torch.randn(5, 4)))
    assert FakeTrial(spaces, TrialSlots.of(spaces, [])).run({}) is None
    assert FakeTrial(spaces, TrialSlots.of(spaces, ["0"])).run({}) is None
    failure = FakeTrial(spaces, TrialSlots.of(spaces, ["1.0.a"])).run({})
    assert failure is not None
    assert failure.modules == ["1.0", "1", ""]
    assert failure.message.startswith("RuntimeError")
    assert failure.progress > 1


def test_the_model_is_not_changed() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).train()
    spaces = spaces_of(capture(model, torch.randn(5, 4)))
    state = torch.get_rng_state()
    assert FakeTrial(spaces, TrialSlots.of(spaces, ["0"])).run({}) is None
    assert model[0].weight.shape == (6, 4)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)


def test_the_first_line_of_an_error() -> None:
    assert first_line(ValueError("one\ntwo")) == "ValueError: one"
    assert first_line(ValueError()) == "ValueError: "
    cut = first_line(ValueError("long " * 100))
    assert len(cut) <= 300
    assert cut.endswith(" ...")
    assert len(first_line(ValueError("x" * 500))) == 300
