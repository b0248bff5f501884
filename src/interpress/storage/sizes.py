"""The sizes that a smaller network keeps outside of its tensors, as `plan.json` records them.

They are integers of modules, such as `num_heads`, and integers in the nodes of graph modules.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from interpress.errors import StorageError
from interpress.graph.traced_nodes import graph_modules
from interpress.surgery.graph_sizes import changed_integers, integers_of, set_integers

_NODE = "node "  # before the name of a node of a graph module; no attribute has a space
Sizes = list[tuple[str, str, Any]]
"""Module, attribute or node, and the new integer or integers."""


def changed_sizes(original: nn.Module, smaller: nn.Module) -> Sizes:
    """Return every integer, tuple or list of integers that differs."""
    sizes: Sizes = []
    for (name, before), after in zip(original.named_modules(), smaller.modules(), strict=True):
        for attribute, value in vars(before).items():
            new = vars(after).get(attribute, value)
            if _is_size(value) and _is_size(new) and value != new:
                sizes.append((name, attribute, new))
    nodes = changed_integers(original, smaller)
    return sizes + [(path, _NODE + node, numbers) for (path, node), numbers in nodes.items()]


def set_sizes(source: Path, smaller: nn.Module, sizes: Any) -> None:
    """Set recorded sizes, which must be integers that the module already has."""
    modules, nodes = dict(smaller.named_modules()), {}
    for module, attribute, value in sizes:
        if attribute.startswith(_NODE):
            name = attribute.removeprefix(_NODE)
            nodes[(module, name)] = _checked(source, smaller, (module, name), value)
            continue
        current = vars(modules[module])[attribute]
        new = tuple(value) if isinstance(current, tuple) else value
        alike = _is_size(current) and _is_size(new) and type(current) is type(new)
        if not alike or (isinstance(new, tuple | list) and len(new) != len(current)):
            raise _only_sizes(source, f"{module}.{attribute}", value, current)
        setattr(modules[module], attribute, new)
    set_integers(smaller, nodes)


def _checked(source: Path, smaller: nn.Module, origin: tuple[str, str], value: Any) -> list[int]:
    path, name = origin
    graph = graph_modules(smaller)[path].graph
    current = integers_of({node.name: node for node in graph.nodes}[name])
    if not isinstance(value, list) or not _is_size(value) or len(value) != len(current):
        raise _only_sizes(source, f"the node {name!r}", value, current)
    return value


def _only_sizes(source: Path, where: str, value: Any, current: Any) -> StorageError:
    return StorageError(
        f"{source} sets {where} to {value!r}, but it is {current!r} in the model; only sizes can "
        "be set. Save the result again"
    )


def _is_size(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(isinstance(part, int) for part in value)
    return isinstance(value, int) and not isinstance(value, bool)
