"""What every budget promises: a checked number, and a network that satisfies it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from interpress import Analysis, ArgumentError, Method, Result
from interpress.budgets import search
from interpress.budgets.budget import Budget
from interpress.budgets.registry import BUDGETS
from interpress.checks import is_number

SATISFIED: dict[str, Callable[[Result, float], bool]] = {
    "agreement": lambda result, value: float(result.agreement or 0) >= value,
    "error": lambda result, value: all(row.error <= value for row in result.plan),
    "flops": lambda result, value: value - 0.03 <= result.flops <= value,
    "latency": lambda result, value: result.latency is not None and result.latency <= value,
    "params": lambda result, value: value - 0.03 <= result.params <= value,
    "width": lambda result, value: all(
        value * row.before <= row.after < value * row.before + 1 for row in result.plan
    ),
}
every = pytest.mark.parametrize("kind", BUDGETS)
up_to_one = pytest.mark.parametrize("kind", [k for k in BUDGETS if not BUDGETS[k].above_one])
"""Those of at least one are for language models; see `rules/test_perplexity.py`."""


def fraction_of_weights(
    smaller: nn.Module, original: nn.Module, example: object, *, rounds: int | None
) -> float:
    """Return a ratio in place of the measured one, which depends on the load of the machine."""
    counts = [sum(p.numel() for p in model.parameters()) for model in (smaller, original)]
    return counts[0] / counts[1]


@up_to_one
@pytest.mark.parametrize("loose", [False, True])
@pytest.mark.filterwarnings("ignore::interpress.RuinedWarning")  # a loose error= ruins it
def test_the_result_satisfies_the_budget(
    kind: str, loose: bool, demo_analysis: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "latency_ratio", fraction_of_weights)
    example = BUDGETS[kind].example
    value = (example + 1) / 2 if loose else example
    result = demo_analysis.compress(**{kind: value}, method=Method(refit=False))
    assert SATISFIED[kind](result, value)
    assert (result.budget.kind, result.budget.value) == (kind, value)
    assert result.flops < 1
    assert result.network.proof.difference < 1e-4


@up_to_one
@pytest.mark.parametrize(
    "value", [0, 0.0, -0.1, 1.001, 50, math.nan, math.inf, "half", True, [0.5]]
)
def test_a_number_out_of_range_is_refused_with_its_meaning(kind: str, value: Any) -> None:
    rule = BUDGETS[kind]
    fault = "is out of range" if is_number(value) else "is not a number"
    message = re.escape(f"{kind}={value!r} {fault}") + ".*" + re.escape(rule.meaning)
    with pytest.raises(ArgumentError, match=f"{message}.*such as {kind}={rule.example:g}"):
        Budget(kind, value)


@every
def test_one_keeps_everything_where_it_is_allowed(kind: str) -> None:
    if BUDGETS[kind].below_one:
        with pytest.raises(ArgumentError, match="a number above 0 and below 1"):
            Budget(kind, 1.0)
    else:
        assert Budget(kind, 1.0).value == 1.0


@every
def test_the_example_is_a_valid_budget_and_the_rule_is_complete(kind: str) -> None:
    rule = BUDGETS[kind]
    budget = Budget(kind, rule.example)
    assert budget.rule is rule
    assert str(budget) == f"{kind}={rule.example:g}"
    assert rule.resource in ("flops", "params")
    assert len(rule.meaning) > 10
    assert rule.prepare(Method(), True).selection == Method().selection
