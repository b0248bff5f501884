"""Check the graph of a `.pt2` file, which is JSON, before torch turns it into objects.

torch resolves the target of a node by attribute access from the `torch` module, evaluates symbolic
sizes as Python expressions, and imports modules that the structure of the inputs names. So only
operators, expressions of symbols, and containers without imports are let through.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload

from interpress.errors import StorageError

_ARITHMETIC = re.compile(
    r"_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|neg|pos|pow"
    r"|eq|ne|lt|le|gt|ge|and_|or_|not_|index)"
    r"|torch\.sym_[a-z]+|torch\._sym_sqrt"
    r"|math\.(ceil|floor|trunc|sqrt|log2)"
)
_OPERATOR = "torch.ops."
_REGIONS = frozenset({"wrap_with_set_grad_enabled", "wrap_with_autocast", "cond", "while_loop"})
"""Operators whose arguments are parts of the same graph."""
_SPELLED_OUT = re.compile(
    r"Symbol\('([a-z]{1,3}\d+)'(?:, [a-z_]+=(?:True|False))*\)"
    r"|Float\('([\d.e+-]+)', precision=\d+\)"
)
"""How sympy spells out a symbol or a number."""
_WORD = re.compile(r"[A-Za-z_]\w*")
_SYMBOL = re.compile(r"[a-z]{1,3}\d+")
_EXPRESSION = re.compile(r"[\w\s+\-*/%(),.<>=!&|~]*")
_ATTRIBUTE = re.compile(r"\.\s*[A-Za-z_]|[A-Za-z_)]\w*\s*\.")
_FUNCTIONS = frozenset(
    """
    Abs Add And CeilDiv CeilToInt CleanDiv Eq Equality False FloatPow FloatTrueDiv FloorDiv
    FloorToInt Ge GreaterThan Gt Identity Infinity IntTrueDiv Integer
    IsNonOverlappingAndDenseIndicator LShift Le LessThan Lt Max Min Mod ModularIndexing Mul Ne
    NegativeInfinity Not Or Pow PowByNatural PythonMod RShift Rational RoundDecimal RoundToInt
    StrictGreaterThan StrictLessThan ToFloat True TruncToFloat TruncToInt Unequality Where
    ceiling floor int_oo oo
    """.split()  # noqa: SIM905
)
"""What torch writes into symbolic sizes."""
_IMPORTS = ("default_factory_module", "__enum__")
"""Keys in the structure of inputs that make torch import a module."""


def check_content(model: Any, source: str) -> None:
    """Raise if reading the graph of a program could run anything but operators."""
    for key, value in _entries(model):
        if key == "nodes":
            for node in value:
                _check_target(node["target"], source)
        elif key == "as_operator":
            _check_target(value, source)
        elif key == "expr_str":
            _check_expression(value, source)
        elif key in ("in_spec", "out_spec") and value:
            _check_structure(value, source)
        elif key == "as_custom_obj":
            raise StorageError(
                f"{source} holds an object of {value.get('class_fqn', 'a custom class')}, which is "
                "pickled; replace it by tensors, and export again"
            )
    for symbol in model.get("range_constraints", {}):
        _check_expression(symbol, source)


def _entries(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key of a nested structure with its value."""
    waiting = [content]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict):
            yield from current.items()
            waiting += current.values()
        elif isinstance(current, list):
            waiting += current


def _check_target(target: Any, source: str) -> None:
    """Raise if the target of a node is something else than an operator that only computes."""
    name = str(target)
    if _ARITHMETIC.fullmatch(name):
        return
    if not name.startswith(_OPERATOR):
        raise _refused(source, name)
    found: Any = torch.ops
    for part in name.removeprefix(_OPERATOR).split("."):
        found = getattr(found, part, None)
    if found is None:
        raise StorageError(
            f"{source} calls the operator {name.removeprefix(_OPERATOR)!r}, which torch "
            f"{torch.__version__} does not have; import the package that registers it, and try "
            "again"
        )
    if isinstance(found, HigherOrderOperator):
        allowed = name.rpartition(".")[2] in _REGIONS
    else:
        allowed = isinstance(found, OpOverload) and not any(
            "file" in argument.name for argument in found._schema.arguments
        )
    if not allowed:
        raise _refused(source, name)


def _refused(source: str, target: str) -> StorageError:
    return StorageError(
        f"{source} calls {target[:80]!r}, which is not an operator of torch. It is not read, "
        "because it could run any code; write the file again with torch.export.save"
    )


def _check_expression(expression: Any, source: str) -> None:
    text = _SPELLED_OUT.sub(lambda found: found[1] or found[2], str(expression))
    words = _WORD.findall(text)
    known = all(_SYMBOL.fullmatch(word) or word in _FUNCTIONS for word in words)
    if not known or not _EXPRESSION.fullmatch(text) or _ATTRIBUTE.search(text):
        raise StorageError(
            f"{source} gives a size as {text[:80]!r}, which is not an expression of symbols. It is "
            "not read, because it could run any code; write the file again with torch.export.save"
        )


def _check_structure(text: Any, source: str) -> None:
    """Check the structure of inputs or outputs, which is JSON inside of JSON."""
    for key, value in _entries(json.loads(text)):
        context = json.dumps(value) if key == "context" else ""
        if key in _IMPORTS or any(word in context for word in _IMPORTS):
            raise StorageError(
                f"{source} has inputs or outputs of a type that torch would import "
                f"({context[:80] or key}); use tuples, lists and dicts, and export again"
            )
