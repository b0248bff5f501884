"""The registry of ONNX operators that can be read.

To support another operator, write one function in the file of its family in `operators/`:

    @operator("Relu")
    def relu(call: Call) -> Any:
        return call.run(aten.relu.default, call.tensor(0))

It returns the value of the node, or a list of values if the node has several outputs. Operators on
shapes are registered with `on_sizes`: they get arrays of numbers in which a size that is only known
when the network runs is a symbol.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from torch import Tensor

import interpress.onnx_files.operators
from interpress.onnx_files.call import Call

Operator = Callable[[Call], Any]

_OPERATORS: dict[str, Operator] = {}
_ON_SIZES: dict[str, Operator] = {}
_MOVES = {"Cast", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"}


def operator(*names: str) -> Callable[[Operator], Operator]:
    """Register the decorated function for operators, such as "Conv" or "com.microsoft.Gelu"."""
    return _register(_OPERATORS, names)


def on_sizes(*names: str) -> Callable[[Operator], Operator]:
    """Register the decorated function for operators some of whose inputs are sizes."""
    return _register(_ON_SIZES, names)


def _register(table: dict[str, Operator], names: tuple[str, ...]) -> Callable[[Operator], Operator]:
    def add(function: Operator) -> Operator:
        for name in names:
            if name in table:
                raise ValueError(f"{name} is registered already: {table[name].__name__}")
            table[name] = function
        return function

    return add


def find_operator(name: str, inputs: Sequence[Any]) -> Operator | None:
    """Return the function of an operator for these inputs, or None if it cannot be read."""
    _load()
    if name in _ON_SIZES and _are_sizes(name, inputs):
        return _ON_SIZES[name]
    return _OPERATORS.get(name)


def _are_sizes(name: str, inputs: Sequence[Any]) -> bool:
    """Return whether a node computes with sizes, rather than with data."""
    given = [value for value in inputs if value is not None]
    if not any(isinstance(value, np.ndarray) for value in given):
        return False
    if name in _MOVES:  # the other inputs say where to
        return isinstance(given[0], np.ndarray)
    return all(isinstance(value, np.ndarray | Tensor) for value in given)


def known_operators() -> list[str]:
    """Return the names of all operators that can be read, sorted."""
    _load()
    return sorted(_OPERATORS)


@cache
def _load() -> None:
    """Import every file of operators."""
    package = interpress.onnx_files.operators
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
