"""Write the widths of a smaller network into its config, if the config can say them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import nn

from interpress.errors import ArgumentError
from interpress.graph.example import Example
from interpress.graph.model_state import output_tensors
from interpress.pretrained.config_edits import Path, listed, read, shapes_from, shapes_of, write
from interpress.pretrained.config_groups import ConfigGroup
from interpress.spaces.spaces import Spaces

_SHOWN = 3  # spaces that an error names


Values = dict[Path, int | list[int]]
"""New values of attributes; a list if an attribute has one size per layer."""


def config_values(
    spaces: Spaces, groups: Sequence[ConfigGroup], widths: Mapping[str, int]
) -> Values:
    """Return the attributes of the config that the widths change; raise if it cannot say them."""
    config = spaces.program.model.config
    values: Values = {}
    described: set[str] = set()
    for group in groups:
        narrowed = {widths.get(name, spaces[name].size) for name in group.members}
        described |= set(group.members)
        size = spaces[group.members[0]].size
        if len(narrowed) > 1:
            if not group.entries:
                raise _cannot(
                    f"{group.members[0]!r} and the same space of other blocks have widths from "
                    f"{min(narrowed)} to {max(narrowed)}"
                )
            path = group.edit.scaled[0]
            values[path] = sizes = listed(config, path) or []
            for name, index in group.entries.items():
                sizes[index] = sizes[index] * widths.get(name, size) // size
            continue
        (width,) = narrowed
        if width < size:
            for path in group.edit.scaled:
                before = values.get(path, read(config, path))
                values[path] = int(before * Fraction(width, size))
            if group.edit.unset is not None:
                values[group.edit.unset] = width
    others = [n for n, w in widths.items() if w < spaces[n].size and n not in described]
    if others:
        names = ", ".join(map(repr, others[:_SHOWN]))
        raise _cannot(f"{len(others)} smaller spaces have no attribute in the config ({names})")
    return values


def update_config(smaller: nn.Module, values: Values, example: Example) -> bool:
    """Set attributes of the smaller network's config; return whether it is now described.

    The config stays as it was if a network built from it has other shapes, or if the smaller
    network then computes something else.
    """
    config: Any = smaller.config
    before = {path: _plain(config, path) for path in values}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        expected = output_tensors(smaller, example)
        for path, value in values.items():
            write(config, path, value)
        same_shapes = shapes_from(smaller, config) == shapes_of(smaller)
        torch.manual_seed(0)
        outputs = output_tensors(smaller, example) if same_shapes else []
    same = same_shapes and all(map(torch.equal, outputs, expected))
    if not same:
        for path, old in before.items():
            _restore(config, path, old)
    return same


def _plain(config: Any, path: Path) -> Any:
    for name in path:
        config = getattr(config, name)
    return config


def _restore(config: Any, path: Path, value: Any) -> None:
    for name in path[:-1]:
        config = getattr(config, name)
    setattr(config, path[-1], value)


def _cannot(reason: str) -> ArgumentError:
    return ArgumentError(
        f"no config of transformers describes this network: {reason}; compress with "
        "same_widths=True, or save it with result.save, which any widths fit into"
    )
