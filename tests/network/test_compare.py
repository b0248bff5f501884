"""Plans are compared on examples they were not fitted to; the usual one wins unless it is worse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rich.progress import Progress

import interpress
from interpress import Analysis, Method, demo
from interpress.allocation.plan import Plan
from interpress.calibration.study import Study
from interpress.network import compare as module
from interpress.network.build import build
from interpress.network.compare import CLEARLY_LESS, ENOUGH_HELD_OUT, Comparison, _Judged, compare
from interpress.progress import Display, display
from interpress.selection.orders import Orders, order_all

METHOD = Method(refit=False)
BARS = Display(Progress(disable=True))


@pytest.fixture(scope="module")
def orders(demo_analysis: Analysis) -> Orders:
    with display(False) as bars:
        return order_all(demo_analysis.study, "weights", bars)


def plan(orders: Orders, fraction: float) -> Plan:
    widths = {name: max(1, int(fraction * len(order.units))) for name, order in orders.items()}
    return Plan.at_widths(widths, orders)


def judged(
    monkeypatch: pytest.MonkeyPatch, demo_analysis: Analysis, orders: Orders, **losses: _Judged
) -> str:
    """Return which of several plans is preferred, given what was measured on each."""
    monkeypatch.setattr(module, "_judge", lambda study, plans, method: losses)
    plans = {name: plan(orders, 0.2 + 0.2 * number) for number, name in enumerate(losses)}
    return compare(demo_analysis.study, plans, METHOD, BARS).best


def spread(mean: float, noise: float, count: int = 40) -> _Judged:
    """Return losses of many examples with this mean."""
    signs = (-1.0) ** torch.arange(count)
    return _Judged(mean, tuple((mean + noise * signs).tolist()))


@pytest.mark.parametrize(
    ("other", "best"),
    [
        (spread(0.5, 0.1), "other"),
        (spread(CLEARLY_LESS, 0.0), "other"),
        (spread(CLEARLY_LESS + 0.01, 0.0), "usual"),  # less, but not clearly
        (spread(0.5, 5.0), "usual"),  # a mean difference of 0.5, a standard error of 0.8
        (spread(0.5, 5.0, count=4), "other"),  # too few examples for a standard error
        (spread(2.0, 0.0), "usual"),
        (_Judged(float("nan"), ()), "usual"),
    ],
)
def test_another_plan_must_be_clearly_and_significantly_better(
    monkeypatch: pytest.MonkeyPatch,
    demo_analysis: Analysis,
    orders: Orders,
    other: _Judged,
    best: str,
) -> None:
    usual = _Judged(1.0, (1.0,) * len(other.examples))
    assert judged(monkeypatch, demo_analysis, orders, usual=usual, other=other) == best


def test_the_best_of_several_better_plans_is_preferred(
    monkeypatch: pytest.MonkeyPatch, demo_analysis: Analysis, orders: Orders
) -> None:
    losses = {"usual": spread(1, 0), "a": spread(0.6, 0), "b": spread(0.4, 0), "c": spread(0.5, 0)}
    assert judged(monkeypatch, demo_analysis, orders, **losses) == "b"


@pytest.mark.parametrize("examples", [None, 20, 3, 1])
def test_a_ruined_plan_loses_against_a_better_one(
    demo_analysis: Analysis, examples: int | None
) -> None:
    """With many held-out examples, with few, with none, and with a single example."""
    study = demo_analysis.study
    if examples is not None:
        data = demo.load_digits().calibration[:examples]
        study = interpress.analyze(demo.network(), data, progress=False).study
    with display(False) as bars:
        orders = order_all(study, "weights", bars)
    plans = {"narrow": plan(orders, 0.05), "wide": plan(orders, 0.9)}
    comparison = compare(study, plans, METHOD, BARS)
    assert comparison.best == "wide"
    assert list(comparison.losses) == ["narrow", "wide"]
    assert comparison.losses["wide"] < comparison.losses["narrow"]
    assert str(comparison).startswith("wide, loss ")
    turned = {name: plans[name] for name in ("wide", "narrow")}
    assert compare(study, turned, METHOD, BARS).best == "wide"


def test_equal_plans_are_built_once(
    demo_analysis: Analysis, orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = demo_analysis.study
    same = {"a": plan(orders, 0.5), "b": plan(orders, 0.5)}
    assert list(compare(study, {**same, "c": plan(orders, 0.6)}, METHOD, BARS).losses) == ["a", "c"]
    monkeypatch.setattr(module, "_judge", None)  # nothing is judged
    assert compare(study, same, METHOD, BARS) == Comparison("a", {"a": 0.0})


@pytest.mark.parametrize(
    ("examples", "expected"),
    [
        (5 * ENOUGH_HELD_OUT, {(None, "held")}),
        (5 * ENOUGH_HELD_OUT - 5, {(0, "second"), (1, "first")}),
        (3, {(0, "second"), (1, "first")}),
        (1, {(0, "all")}),
    ],
)
def test_networks_are_judged_where_they_were_not_interpolated(
    examples: int, expected: set[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = demo.load_digits().calibration[:examples]
    study = interpress.analyze(demo.network(), data, progress=False).study
    with display(False) as bars:
        orders = order_all(study, "weights", bars)
    fitted: list[int | None] = []
    used = set()
    interpolations, evaluator = Study.interpolations, Study.evaluator

    def record_half(self: Study, kept: Any, half: int | None = None, **options: Any) -> Any:
        fitted.append(half)
        return interpolations(self, kept, half, **options)

    def record_part(self: Study, part: Any = "held") -> Any:
        used.add((fitted[-1], part))
        return evaluator(self, part)

    monkeypatch.setattr(Study, "interpolations", record_half)
    monkeypatch.setattr(Study, "evaluator", record_part)
    compare(study, {"a": plan(orders, 0.5), "b": plan(orders, 0.6)}, METHOD, BARS)
    assert used == expected


def test_the_agreement_of_the_best_plan_is_that_of_its_network(
    demo_analysis: Analysis, orders: Orders
) -> None:
    study = demo_analysis.study
    plans = {"a": plan(orders, 0.7), "b": plan(orders, 0.4)}
    comparison = compare(study, plans, METHOD, BARS)
    built = build(study, plans[comparison.best], METHOD, BARS)
    assert comparison.built is not None
    assert comparison.built.agreement == built.agreement
    known = build(study, plans[comparison.best], METHOD, BARS, known=comparison.built)
    assert known.agreement is comparison.built.agreement
    assert known.model is comparison.built.model
    assert known.proof == built.proof
