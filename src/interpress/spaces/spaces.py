"""All channel spaces of a network, and the program they were found in."""

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
from interpress.spaces.example_count import example_count
from interpress.spaces.frozen import FrozenShare, frozen_shares
from interpress.spaces.membership import Membership
from interpress.spaces.table import render
from interpress.spaces.taps import Tap


@dataclass(frozen=True, eq=False)
class Spaces(Sequence[ChannelSpace]):
    """All channel spaces of a network, indexed by number or name. `print` shows them as a table."""

    program: Program
    trace: Trace
    all: tuple[ChannelSpace, ...]
    taps: Mapping[str, Tap]
    membership: Membership
    choices: Mapping[Any, Any] = field(default_factory=dict)
    """Per integer attribute of the model's modules, the size it follows; see
    `interpress.surgery.size_attributes`."""
    rescaled: frozenset[str] = frozenset()
    """Taps whose consumer divides by the square root of the tap's actual width."""

    @cached_property
    def cost(self) -> CostModel:
        """The cost of the network at any widths."""
        return CostModel(self.program, self.trace, self.all, self.membership)

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, key: int | str) -> ChannelSpace:  # type: ignore[override]
        if isinstance(key, int):
            return self.all[key]
        if key in self._numbers:
            return self.all[self._numbers[key]]
        raise ArgumentError(f"there is no space {key!r}; the spaces are {', '.join(self.names)}")

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {space.name: number for number, space in enumerate(self.all)}

    def __iter__(self) -> Iterator[ChannelSpace]:
        return iter(self.all)

    @property
    def names(self) -> list[str]:
        """The names of all spaces, in order."""
        return [space.name for space in self.all]

    @property
    def unused(self) -> tuple[str, ...]:
        """Names of parameters that are not used in evaluation mode. They are not changed."""
        used = {self.program.weight_name(node) for node in self.program.nodes if node.users}
        return tuple(name for name, _ in self.program.model.named_parameters() if name not in used)

    @property
    def shrinkable(self) -> list[ChannelSpace]:
        """The spaces that can lose channels."""
        return [space for space in self.all if space.frozen is None]

    @property
    def frozen(self) -> list[ChannelSpace]:
        """The spaces that cannot lose channels. Each has a reason in its own `frozen`."""
        return [space for space in self.all if space.frozen is not None]

    def frozen_shares(self) -> tuple[FrozenShare, ...]:
        """Return the frozen spaces by family of reasons, with a remedy and their share of FLOPs.

        FLOPs that depend on no space are a family of their own, without spaces. The shares add up
        to `1 - cost.shrinkable_share()`.
        """
        reasons = [(space.name, space.frozen) for space in self.all]
        return frozen_shares(reasons, self.cost.fixed_flops())

    def freeze(self, reasons: Mapping[str, str]) -> Spaces:
        """Return the same spaces with the named ones frozen. An earlier reason is kept."""
        changed = tuple(
            replace(s, frozen=s.frozen or reasons[s.name]) if s.name in reasons else s
            for s in self.all
        )
        return replace(self, all=changed)

    def tied(self, names: Sequence[str]) -> Spaces:
        """Return the spaces with the named ones merged, because they must keep the same share."""
        first, *following = sorted(self._numbers[name] for name in names if name in self._numbers)
        merged, membership, spaces = self.all[first], self.membership, list(self.all)
        for index in reversed(following):
            absorbed = spaces.pop(index)
            membership = membership.joined(first, index, merged.size)
            merged = union(merged, absorbed)
        spaces[first] = merged
        return replace(self, all=tuple(spaces), membership=membership)

    def index(self, value: ChannelSpace, start: int = 0, stop: int | None = None) -> int:
        """Return the number of a space."""
        number = self._numbers.get(value.name, -1)
        if not start <= number < (len(self.all) if stop is None else stop):
            raise ValueError(f"{value.name!r} is not among these spaces")
        return number

    def __str__(self) -> str:
        return render(
            self.all, self.cost, self.unused, self.frozen_shares(), example_count(self.program)
        )

    def __repr__(self) -> str:
        share, name = self.cost.shrinkable_share(), type(self.program.model).__name__
        return (
            f"Spaces({name}: {len(self.shrinkable)} can shrink, {len(self.frozen)} frozen, "
            f"{share:.0%} of the FLOPs depend on those that can shrink)"
        )
