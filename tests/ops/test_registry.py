from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import interpress.ops
from interpress import find_spaces
from interpress.ops.registry import families, flops, rule

FILES = sorted(Path(interpress.ops.__path__[0]).glob("*.py"))


def test_every_family_has_a_test_file() -> None:
    here = Path(__file__).parent
    missing = [
        f.stem for f in FILES if f.stem != "__init__" and not (here / f"test_{f.stem}.py").exists()
    ]
    assert missing == []


def test_every_rule_names_an_operator_of_torch() -> None:
    for family in families():
        name = family.removeprefix("aten.")
        assert family == "pointwise" or hasattr(torch.ops.aten, name), family


def test_an_operator_has_one_rule_and_one_cost() -> None:
    with pytest.raises(ValueError, match=r"aten.linear already has a rule: linear"):
        rule("aten.linear")(lambda op: ())
    with pytest.raises(ValueError, match=r"aten.linear already has a cost: linear_flops"):
        flops("aten.linear")(lambda op: [])


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
