"""The registry of operator rules.

A rule describes what one operator does to labels. It takes an `Op` and returns the labellings of
the output: one tuple of `Labelling`s, or a list of such tuples for an operator with several
outputs. To support a new operator, write one function in the file of its family:

    @rule("aten.flip", linear=True)
    def flip(op: Op) -> Labellings: ...

`linear=True` means that the operator gives the same result whether channels are linearly combined
before or after it. `@flops(...)` registers the cost of an operator. An operator without a rule
freezes the channels of its inputs.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

import interpress.ops
from interpress.labels.labelling import Labellings
from interpress.labels.trace import Op, Value

Rule = Callable[[Op], Labellings | list[Labellings]]
Term = tuple[int, tuple[tuple[Value, int], ...]]
"""A cost: an integer times the sizes of some dims, each given as (value, dim)."""
Flops = Callable[[Op], list[Term]]

_LOG = logging.getLogger(__name__)
_RULES: dict[str, tuple[Rule, bool]] = {}
_FLOPS: dict[str, Flops] = {}


def rule(*families: str, linear: bool = False) -> Callable[[Rule], Rule]:
    """Register the decorated rule for operators such as `aten.relu`.

    It covers all overloads and the in-place form. Raise `ValueError` if an operator has a rule.
    """

    def register(function: Rule) -> Rule:
        for family in families:
            if family in _RULES:
                raise ValueError(f"{family} already has a rule: {_RULES[family][0].__name__}")
            _RULES[family] = (function, linear)
        return function

    return register


def flops(*families: str) -> Callable[[Flops], Flops]:
    """Register the decorated function as the cost of operators; a multiply-add counts as two.

    The function returns a list of `Term`s, which are added. Raise `ValueError` if an operator has a
    cost.
    """

    def register(function: Flops) -> Flops:
        for family in families:
            if family in _FLOPS:
                raise ValueError(f"{family} already has a cost: {_FLOPS[family].__name__}")
            _FLOPS[family] = function
        return function

    return register


def apply_rule(op: Op, tensors: list[Tensor]) -> list[Labellings]:
    """Return the labellings of every output of the operator, and set `op.linear`.

    Without a rule, or if the rule raises, the inputs are frozen and the outputs have no labels.
    """
    registered = _find(op)
    if registered is None:
        reason = f"{op.location} has no rule for its channels; add one with interpress.extend.rule"
        return _unfollowed(op, tensors, reason)
    function, op.linear = registered
    try:
        result: Any = function(op)
    except Exception as problem:  # a rule that cannot handle this call must not stop the analysis
        _LOG.warning("the rule for %s failed: %r", op.location, problem)
        return _unfollowed(
            op, tensors, f"the rule for {op.location} raised {type(problem).__name__}"
        )
    return result if isinstance(result, list) else [result]


def terms(op: Op) -> list[Term]:
    """Return the cost of the operator as a sum of products of dims."""
    _load()
    function = _FLOPS.get(op.family) or _FLOPS.get(op.family.removesuffix("_"))
    return function(op) if function else []


def families() -> list[str]:
    """Return the names of all operators with a rule, sorted.

    The special name `pointwise` stands for every operator that PyTorch tags as pointwise.
    """
    _load()
    return sorted(_RULES)


def _find(op: Op) -> tuple[Rule, bool] | None:
    """Return the rule of the operator and whether it is linear, or None."""
    _load()
    registered = _RULES.get(op.family) or _RULES.get(op.family.removesuffix("_"))
    if registered is None and torch.Tag.pointwise in getattr(op.node.target, "tags", ()):
        return _RULES["pointwise"]
    return registered


def _unfollowed(op: Op, tensors: list[Tensor], reason: str) -> list[Labellings]:
    """Freeze the inputs of an operator without a usable rule; return no labels for its outputs."""
    op.linear = False
    for value in op.inputs():
        if _is_weight(value):  # lists the channels of this weight as a space, with the reason
            op.trace.produced += [labelling.labels for labelling in value.channels()]
        for labelling in value.labellings:
            op.trace.freeze(labelling.labels, reason)
    return [() for _ in tensors]


def _is_weight(value: Value) -> bool:
    """Return whether a value is a weight, or a transposed or reshaped one."""
    while value.weight is None:
        if value.op is None or not value.op.linear or len(value.op.inputs()) != 1:
            return False
        (value,) = value.op.inputs()
    return True


@cache
def _load() -> None:
    """Import every file of rules in this package."""
    for module in pkgutil.iter_modules(interpress.ops.__path__):
        importlib.import_module(f"interpress.ops.{module.name}")
