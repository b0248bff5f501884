"""`Method`: the parts of a compression, frozen and checked."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from interpress import METHODS, ArgumentError, Method
from interpress.allocation.registry import ALLOCATIONS
from interpress.method import as_method


def test_a_method_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Method().refit = False  # type: ignore[misc]


BAD: list[tuple[str, Any, str]] = [
    ("selection", "luck", "selection='luck' is not known; choose one of bn-scale"),
    ("allocation", "fair", "allocation='fair' is not known; choose one of best, constant"),
    ("step", "a", "step='a'; give the fraction of a layer to cut at a time, such as 0.05"),
    ("step", 0, "step=0; give"),
    ("step", 1, "step=1; give"),
    ("step", float("nan"), "step=nan; give"),
    ("step", True, "step=True; give"),
    ("refit", "yes", "refit='yes'; give True or False"),
    ("correct", 1, "correct=1; give True or False"),
    ("regularize", 0, "regularize=0; give True or False"),
    ("balance", None, "balance=None; give True or False"),
    ("recompute", 0, "recompute=0; give True or False"),
]


@pytest.mark.parametrize(("part", "value", "message"), BAD)
def test_bad_parts_are_named_with_the_remedy(part: str, value: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Method(**{part: value})
    with pytest.raises(ArgumentError, match=message):
        Method.named("constant-id", **{part: value})


def test_named_methods() -> None:
    assert Method() == METHODS["preserve"] == Method.named("preserve")
    for name, method in METHODS.items():
        assert Method.named(name) == method
        assert method.name == str(method) == name
    changed = Method.named("iterative-id", refit=True)
    assert changed.refit
    assert (changed.selection, changed.allocation) == ("pivoting", "iterative")
    with pytest.raises(ArgumentError, match="method='magic' is not known; choose one of preserve"):
        Method.named("magic")
    with pytest.raises(ArgumentError, match="a method has no 'widths'; its parts are selection"):
        Method.named("preserve", widths=3)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        (Method(refit=False), "preserve with refit=False"),
        (Method(step=0.1), "preserve with step=0.1"),
        (Method(selection="l1", correct=False), "preserve with selection='l1', correct=False"),
        (Method.named("iterative-id", refit=True), "iterative-id with refit=True"),
        (
            Method("pivoting", "constant", refit=False, regularize=False, step=0.1),
            "constant-id with step=0.1",
        ),
    ],
)
def test_a_changed_method_is_named_after_the_closest_one(method: Method, name: str) -> None:
    assert method.name == str(method) == name


def test_methods_are_equal_if_their_parts_are() -> None:
    assert Method(refit=False) == Method.named("preserve", refit=False)
    assert hash(Method(refit=False)) == hash(Method.named("preserve", refit=False))
    assert Method(refit=False) != Method()
    assert len({Method(), METHODS["preserve"], Method(step=0.1)}) == 2


def test_only_the_best_allocation_is_chosen_among_several() -> None:
    assert Method().allocation == "best"
    assert Method().candidates == (
        "measured", "halfway", "marginal", "constant", "heads-per-group", "heads-last",
    )  # fmt: skip
    assert set(Method().candidates) <= set(ALLOCATIONS)
    for name in ALLOCATIONS:
        assert Method(allocation=name).candidates == (name,)


def test_what_a_user_may_pass_as_a_method() -> None:
    method = Method(step=0.2)
    assert as_method(method) is method
    assert as_method("constant-id") == METHODS["constant-id"]
    for wrong in (None, 3, {"refit": True}):
        with pytest.raises(ArgumentError, match=r"or an interpress\.Method"):
            as_method(wrong)  # type: ignore[arg-type]
