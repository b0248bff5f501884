"""The table of operator rules. A rule says what an operator does to labels, and nothing else.

A rule takes an `Op` and returns the layers of its output: one tuple of `Layer`s, or a list of such
tuples for an operator with several outputs. To teach interpress a new operator, write one function
in the file of its family:

    @rule("aten.flip", linear=True)
    def flip(op: Op) -> Layers: ...

`linear` says that the operator commutes with mixing channels. `@flops(...)` registers what an
operator costs, as products of dims. An operator without a rule freezes what it touches.
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
"""A cost: an integer times the sizes of some dims."""
Flops = Callable[[Op], list[Term]]

_LOG = logging.getLogger(__name__)
_RULES: dict[str, tuple[Rule, bool]] = {}
_FLOPS: dict[str, Flops] = {}


def rule(*families: str, linear: bool = False) -> Callable[[Rule], Rule]:
    """Register the rule of these operators (`aten.name`, for all overloads and in-place forms)."""

    def register(function: Rule) -> Rule:
        for family in families:
            if family in _RULES:
                raise ValueError(f"{family} already has a rule: {_RULES[family][0].__name__}")
            _RULES[family] = (function, linear)
        return function

    return register


def flops(*families: str) -> Callable[[Flops], Flops]:
    """Register what these operators cost, counting a multiply-add as two."""

    def register(function: Flops) -> Flops:
        for family in families:
            if family in _FLOPS:
                raise ValueError(f"{family} already has a cost: {_FLOPS[family].__name__}")
            _FLOPS[family] = function
        return function

    return register


def apply_rule(op: Op, tensors: list[Tensor]) -> list[Labellings]:
    """The layers of every output of the operator, by its rule or, without one, none."""
    found = _find(op)
    if found is None:
        return _unknown(op, tensors)
    function, op.linear = found
    try:
        result: Any = function(op)
    except Exception as problem:  # a rule that does not fit freezes, like no rule at all
        _LOG.warning("the rule for %s failed: %r", op.where, problem)
        return _unknown(op, tensors)
    return result if isinstance(result, list) else [result]


def terms(op: Op) -> list[Term]:
    """What the operator costs, as products of dims."""
    _load()
    function = _FLOPS.get(op.family) or _FLOPS.get(op.family.removesuffix("_"))
    return function(op) if function else []


def families() -> list[str]:
    """Every operator with a rule, sorted."""
    _load()
    return sorted(_RULES)


def _find(op: Op) -> tuple[Rule, bool] | None:
    _load()
    found = _RULES.get(op.family) or _RULES.get(op.family.removesuffix("_"))
    if found is None and torch.Tag.pointwise in getattr(op.node.target, "tags", ()):
        return _RULES["pointwise"]
    return found


def _unknown(op: Op, tensors: list[Tensor]) -> list[Labellings]:
    op.linear = False
    for value in op.inputs():
        if value.weight:  # so that its channels are listed, with the reason
            op.trace.produced += [labelling.labels for labelling in value.channels()]
        for labelling in value.labellings:
            op.trace.freeze(labelling.labels, f"{op.where} is an operator interpress does not know")
    return [() for _ in tensors]


@cache
def _load() -> None:
    """Import every file of rules beside this one."""
    for module in pkgutil.iter_modules(interpress.ops.__path__):
        importlib.import_module(f"interpress.ops.{module.name}")
