"""All channel spaces of a network, with the program they were found in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from interpress.errors import ArgumentError
from interpress.graph.program import Program
from interpress.labels.trace import Trace
from interpress.spaces.channel_space import ChannelSpace, union
from interpress.spaces.cost import CostModel
from interpress.spaces.membership import Membership
from interpress.spaces.table import render
from interpress.spaces.taps import Tap


@dataclass(frozen=True, eq=False)
class Spaces(Sequence[ChannelSpace]):
    """All channel spaces of a network, with the graph they were found in."""

    program: Program
    trace: Trace
    all: tuple[ChannelSpace, ...]
    taps: Mapping[str, Tap]
    membership: Membership
    choices: Mapping[Any, Any] = field(default_factory=dict)
    """Which size every attribute of the model's own modules follows; see `interpress.sizes`."""
    rescaled: frozenset[str] = frozenset()
    """Taps whose consumer's own code divides by the square root of the width it finds."""

    @cached_property
    def cost(self) -> CostModel:
        """What the network costs at any widths."""
        return CostModel(self.program, self.trace, self.all, self.membership)

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, key: int | str) -> ChannelSpace:  # type: ignore[override]
        if isinstance(key, int):
            return self.all[key]
        for space in self.all:
            if space.name == key:
                return space
        raise ArgumentError(f"there is no space {key!r}; the spaces are {', '.join(self.names)}")

    def __iter__(self) -> Iterator[ChannelSpace]:
        return iter(self.all)

    @property
    def names(self) -> list[str]:
        """The names of all spaces, in order."""
        return [space.name for space in self.all]

    @property
    def unused(self) -> tuple[str, ...]:
        """Parameters that evaluation never touches; what only training runs is left as it is."""
        used = {self.program.weight_name(node) for node in self.program.nodes if node.users}
        return tuple(name for name, _ in self.program.model.named_parameters() if name not in used)

    @property
    def shrinkable(self) -> list[ChannelSpace]:
        """The spaces that can lose channels."""
        return [space for space in self.all if space.frozen is None]

    @property
    def frozen(self) -> list[ChannelSpace]:
        """The spaces that cannot, each with its reason."""
        return [space for space in self.all if space.frozen is not None]

    def freeze(self, reasons: Mapping[str, str]) -> Spaces:
        """The same spaces with more of them frozen."""
        changed = tuple(
            replace(s, frozen=s.frozen or reasons[s.name]) if s.name in reasons else s
            for s in self.all
        )
        return replace(self, all=changed)

    def tied(self, names: Sequence[str]) -> Spaces:
        """The same spaces with some made one, because they can only shrink alike."""
        first, *rest = sorted(self.index(self[name]) for name in names if name in self.names)
        merged, membership, spaces = self.all[first], self.membership, list(self.all)
        for index in reversed(rest):
            other = spaces.pop(index)
            membership = membership.joined(first, index, merged.size)
            merged = union(merged, other)
        spaces[first] = merged
        return replace(self, all=tuple(spaces), membership=membership)

    def index(self, value: ChannelSpace, start: int = 0, stop: int | None = None) -> int:
        """The place of a space."""
        return self.names.index(value.name, start, stop or len(self.all))

    def __str__(self) -> str:
        return render(self.all, self.cost, self.unused)

    __repr__ = __str__
