"""The integers of a network that a compression changed, such as a number of heads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn

from interpress.errors import StorageError


def changed_sizes(original: nn.Module, smaller: nn.Module) -> Iterator[tuple[str, str, Any]]:
    """Yield module, attribute and new value of every integer (or tuple of them) that differs."""
    for (name, before), after in zip(original.named_modules(), smaller.modules(), strict=True):
        for attribute, value in vars(before).items():
            new = vars(after).get(attribute, value)
            if _is_size(value) and _is_size(new) and value != new:
                yield name, attribute, new


def set_sizes(plan: Path, smaller: nn.Module, sizes: Any) -> None:
    """Set recorded sizes, which must be integers that the module already has."""
    modules = dict(smaller.named_modules())
    for module, attribute, value in sizes:
        current = vars(modules[module])[attribute]
        new = tuple(value) if isinstance(current, tuple) else value
        alike = _is_size(current) and _is_size(new) and type(current) is type(new)
        if not alike or (isinstance(new, tuple | list) and len(new) != len(current)):
            raise StorageError(
                f"{plan} sets {module}.{attribute} to {value!r}, but it is {current!r} in "
                "the model; only sizes can be set. Save the result again"
            )
        setattr(modules[module], attribute, new)


def _is_size(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(isinstance(part, int) for part in value)
    return isinstance(value, int) and not isinstance(value, bool)
