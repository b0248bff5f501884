"""Integers of a file, such as the shape of a Reshape: they remember where they were written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Place:
    """Where a file says an integer."""

    node: int
    """The index of the node that reads it."""
    argument: int | str
    """The node's input, or the name of its attribute."""
    index: int
    """The position in the flattened list; 0 for a single integer."""


IMPLIED = ""
"""The argument of integers that follow from the shape of a weight, and need not be written."""


class FileInt(int):
    """An integer that knows its place in a file."""

    place: Place

    def __new__(cls, value: int, place: Place) -> FileInt:
        """Return the integer `value`, written at `place`."""
        number = super().__new__(cls, value)
        number.place = place
        return number


Path = tuple[int | str, ...]
"""How to reach an integer among the arguments of a node, such as (1, 0)."""


def places_in(arguments: Any, path: Path = ()) -> Iterator[tuple[Path, Place]]:
    """Yield the integers of a file among nested arguments, with the way to each."""
    if isinstance(arguments, FileInt):
        yield path, arguments.place
    elif isinstance(arguments, list | tuple):
        for index, item in enumerate(arguments):
            yield from places_in(item, (*path, index))
    elif isinstance(arguments, Mapping):
        for key, item in arguments.items():
            yield from places_in(item, (*path, key))


def at(arguments: Any, path: Path) -> Any:
    """Return the argument that a path leads to."""
    for key in path:
        arguments = arguments[key]
    return arguments


def plain(arguments: Any) -> Any:
    """Return the arguments with ordinary integers."""
    if isinstance(arguments, FileInt):
        return int(arguments)
    if isinstance(arguments, list | tuple):
        return type(arguments)(plain(item) for item in arguments)
    if isinstance(arguments, dict):
        return {key: plain(item) for key, item in arguments.items()}
    return arguments
