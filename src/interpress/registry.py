"""Tables of parts found by name: selections, allocations and budgets.

The built-in parts of a registry are the files of one package. The name of a part is the name of its
file, with dashes for underscores (or as it is, with `dashes=False`). A file is imported when its
part is first used, so listing the names imports nothing. Other packages add parts with `register`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from interpress.errors import ArgumentError

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """The parts of one kind, by name.

    `kind` is what users call such a part, as in "selection". `package` is the dotted name of the
    package whose files define the built-in parts.
    """

    def __init__(self, kind: str, package: str, *, dashes: bool = True) -> None:
        self.kind = kind
        self._package = package
        self._separator = "-" if dashes else "_"
        self._parts: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds a part under a name; a second part of that name raises."""

        def add(part: T) -> T:
            # a built-in part registers itself while its file is imported; any other part is second
            unread = name in self._files() and self._module(name) not in sys.modules
            if unread or name in self._parts:
                raise ValueError(f"the {self.kind} {name!r} is registered already")
            self._parts[name] = part
            return part

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self._parts and name in self._files():
            importlib.import_module(self._module(name))
        if name not in self._parts:
            raise ArgumentError(
                f"{self.kind}={name!r} is not known; choose one of {', '.join(self)}"
            )
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts or name in self._files()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._files(), *self._parts]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _module(self, name: str) -> str:
        file = name.replace(self._separator, "_")
        return f"{self._package}.{file}"

    def _files(self) -> list[str]:
        path = importlib.import_module(self._package).__path__
        files = [module.name for module in pkgutil.iter_modules(path)]
        return sorted(file.replace("_", self._separator) for file in files)
