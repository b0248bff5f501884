"""Options are checked once, before anything is read or run."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from interpress import METHODS, ArgumentError, Method
from interpress.allocation.problem import WidthLimits
from interpress.budgets.budget import Budget
from interpress.pipeline.options import Options, as_patterns

LIMITS = WidthLimits()


@pytest.mark.parametrize("memory", ["a", math.nan, math.inf, -1, 0, True])
def test_memory_is_a_positive_number_of_gib(memory: Any) -> None:
    with pytest.raises(ArgumentError, match=rf"memory={memory!r}; give the GiB.*such as 1\.0"):
        Options(memory=memory)


def test_an_unknown_kind_of_output() -> None:
    with pytest.raises(ArgumentError, match="kind='guess'; choose one of auto"):
        Options(kind="guess")


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({}, "exactly one budget of .*got none"),
        ({"flops": 0.5, "width": 0.5}, r"flops=0\.5 and width=0\.5"),
        ({"flops": 0.0}, r"flops=0\.0 is out of range"),
        ({"flops": "half"}, "flops='half' is not a number"),
        ({"params": 50}, "params=50 is out of range"),
        ({"error": 1.0}, "above 0 and below 1"),
        ({"selection": "l1"}, "selection= is not an argument of compress; the budgets are"),
    ],
)
def test_bad_budgets(budget: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Options().asking(budget, "preserve", LIMITS)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("magic", "method='magic' is not known; choose one of preserve, iterative-id, constant-id"),
        (None, "method=None; give one of preserve.*or an interpress.Method"),
        (3, "method=3; give one of preserve"),
    ],
)
def test_bad_methods(method: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Options().asking({"flops": 0.5}, method, LIMITS)


CHANGES: list[dict[str, Any]] = [
    {"selection": "l1"}, {"correct": False}, {"refit": True}, {"allocation": "marginal"},
    {"balance": False},
]  # fmt: skip


@pytest.mark.parametrize("changes", CHANGES)
def test_the_literal_loop_takes_no_other_parts(changes: dict[str, Any]) -> None:
    method = Method.named("iterative-id", recompute=True, **changes)
    with pytest.raises(ArgumentError, match=r"recompute=True is the literal loop.*no other part"):
        Options().asking({"flops": 0.5}, method, LIMITS)


def test_the_literal_loop_takes_a_step_and_flops_only() -> None:
    literal = Method.named("iterative-id", recompute=True, step=0.1)
    assert Options().asking({"flops": 0.5}, literal, LIMITS).method is literal
    with pytest.raises(
        ArgumentError, match=r"got iterative-id with .*recompute=True and params=0\.5"
    ):
        Options().asking({"params": 0.5}, literal, LIMITS)


def test_what_to_build_is_added_to_how_to_look() -> None:
    looking = Options(exclude=("stem",), kind="binary", memory=2.0, seed=7)
    limits = WidthLimits(8, 16)
    options = looking.asking({"params": 0.4, "flops": None}, "constant-id", limits, False)
    assert options.budget == Budget("params", 0.4)
    assert options.method == METHODS["constant-id"]
    assert (options.limits, options.progress) == (limits, False)
    assert (options.exclude, options.kind, options.memory, options.seed) == (
        ("stem",), "binary", 2.0, 7,
    )  # fmt: skip
    assert looking.budget is None


@pytest.mark.parametrize(("method", "patches"), [("preserve", True), ("iterative-id", False)])
def test_patches_are_measured_only_for_the_selection_that_needs_them(
    method: str, patches: bool
) -> None:
    assert Options().asking({"flops": 0.5}, method, LIMITS).patches == patches


def test_a_budget_may_turn_the_refit_of_a_named_method_off_but_not_of_a_written_one() -> None:
    for method, refit in (("preserve", False), (Method(), True)):
        asked = Options().asking({"error": 0.1}, method, LIMITS).method
        assert asked == Method(refit=refit, regularize=False)  # the certificate is about plain T
    with pytest.raises(ArgumentError, match="correct=False leaves T out"):
        Options().asking({"error": 0.1}, Method(correct=False), LIMITS)


def test_options_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Options().seed = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("exclude", "patterns"), [("stem", ("stem",)), (["a", "b.*"], ("a", "b.*")), ((), ())]
)
def test_a_single_pattern_is_not_a_list_of_letters(exclude: Any, patterns: tuple[str, ...]) -> None:
    assert as_patterns(exclude) == patterns
