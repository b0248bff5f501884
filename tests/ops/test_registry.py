from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.ops.calls import Call, Followed
from torch import nn

import interpress.ops
from interpress import find_spaces
from interpress.ops import registry
from interpress.ops.registry import families, flops, rule, terms

FILES = sorted(Path(interpress.ops.__path__[0]).glob("*.py"))


def test_every_file_of_rules_has_a_test_file() -> None:
    names = {file.stem for file in FILES} - {"__init__"}
    tests = {file.stem.removeprefix("test_") for file in Path(__file__).parent.glob("test_*.py")}
    assert tests == names | {"contract"}


def test_an_operator_has_one_rule_and_one_cost() -> None:
    with pytest.raises(ValueError, match=r"aten.linear already has a rule: linear"):
        rule("aten.linear")(lambda op: ())
    with pytest.raises(ValueError, match=r"aten.linear already has a cost: linear_flops"):
        flops("aten.linear")(lambda op: [])


def test_families_are_sorted_and_complete() -> None:
    assert families() == sorted(registry._RULES)
    assert {"aten.linear", "aten.unfold", "pointwise"} <= set(families())


def test_in_place_forms_share_rule_and_cost() -> None:
    call = Call.of("relu_", torch.ones(2))
    assert call.family == "aten.relu_"
    assert registry._find(Followed(call).op) == registry._RULES["aten.relu"]
    assert terms(Followed(call).op) == []


def test_a_rule_that_raises_freezes_what_it_touches(monkeypatch, caplog) -> None:
    def broken(op):
        raise IndexError("no such dim")

    monkeypatch.setitem(registry._RULES, "aten.relu", (broken, True))
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    spaces = find_spaces(model, torch.randn(2, 4))
    assert spaces["0"].frozen == "the rule for aten.relu at 1 raised IndexError"
    assert "the rule for aten.relu at 1 failed: IndexError('no such dim')" in caplog.text


def test_an_unknown_operator_freezes_what_it_touches_and_nothing_else() -> None:
    class Fourier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x):
            h = torch.fft.rfft(self.a(x), dim=1).real
            return self.c(torch.relu(self.b(h)))

    spaces = find_spaces(Fourier(), torch.randn(2, 5, 4))
    assert "aten.fft_rfft has no rule for its channels" in str(spaces["a"].frozen)
    assert spaces["b"].frozen is None
