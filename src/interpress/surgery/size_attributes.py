"""Sizes that a module keeps for itself, and where in its computation they are seen.

A module may keep whole numbers (`num_heads`, `split_size`) that its code uses in `view` or `split`.
Such a number follows a *source*: a dim of one of the module's weights or of a value its forward
meets, which had that size. All instances of a class run the same code, so a source counts only if
it fits every instance; that rarely leaves more than one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from interpress.graph.program import module_of
from interpress.labels.trace import Value
from interpress.spaces.spaces import Spaces

Source = tuple[Any, ...]
"""Where a size is seen, relative to a module: a weight's dim, or a dim of an operator's value."""


@dataclass(frozen=True)
class Slot:
    """A whole number that every instance of a module class keeps."""

    kind: type[nn.Module]
    attribute: str
    place: int | None
    """The place in a tuple or list, or None for a plain number."""


@dataclass(frozen=True)
class Seen:
    """A size before and after, and the spaces that change it."""

    before: int
    after: int
    spaces: frozenset[int]


Sizes = dict[str, dict[Source, Seen]]


def observe(spaces: Spaces, widths: Mapping[str, int]) -> Sizes:
    """Every size a module's own code meets, at these widths."""
    cost = spaces.cost
    shares = cost.shares(widths)
    sizes: Sizes = {}

    def note(module: str, source: Source, value: Value) -> None:
        own = sizes.setdefault(module, {})
        for dim, before in enumerate(value.shape):
            if dim in value.varying:
                continue
            after, involved = cost.length(value, dim, shares)
            place: Source = (*source, dim)
            own[place] = Seen(before, after, frozenset(involved & shares.keys()))

    for name, value in spaces.trace.weights.items():
        module, _, local = name.rpartition(".")
        note(module, ("weight", local), value)
    counts: Counter[str] = Counter()
    for op in spaces.trace.ops:
        module = module_of(op.node)
        for index, value in enumerate([*op.inputs(), *op.outputs]):
            note(module, ("value", counts[module], op.family, index), value)
        counts[module] += 1
    return sizes


@dataclass(frozen=True)
class Options:
    """The sources a slot may follow, likeliest first; None leaves it as it is."""

    slot: Slot
    modules: tuple[str, ...]
    sources: tuple[Source | None, ...]
    doubtful: bool
    """Whether some size that fits stays as it is, so that the number may have to stay too."""


def with_numbers(
    model: nn.Module, known: tuple[type[nn.Module], ...]
) -> dict[type[nn.Module], list[str]]:
    """The modules that keep whole numbers which may be sizes, by kind; not those of known kinds."""
    kinds: dict[type[nn.Module], list[str]] = {}
    for name, module in model.named_modules():
        holds = any(
            True for _ in (*module.parameters(recurse=False), *module.buffers(recurse=False))
        )
        if not (isinstance(module, known) and holds):
            kinds.setdefault(type(module), []).append(name)
    modules = dict(model.named_modules())
    return {kind: names for kind, names in kinds.items() if any(_numbers(modules[names[0]]))}


def options(spaces: Spaces, sizes: Sizes, known: tuple[type[nn.Module], ...]) -> list[Options]:
    """The slots that some source says may have to change."""
    modules = dict(spaces.program.model.named_modules())
    found = []
    for kind, names in with_numbers(spaces.program.model, known).items():
        own = [sizes.get(name, {}) for name in names]
        below = [_below(sizes, name) for name in names]
        for attribute, place, _ in _numbers(modules[names[0]]):
            slot = Slot(kind, attribute, place)
            values = [read(modules[name], slot) for name in names]
            near, far = _ways(own, values), _ways(below, values)
            unchanged = tuple(value for value in values if value is not None)
            ways = near if any(way != unchanged for way in near) else far
            if any(way != unchanged for way in ways):
                sources = _ranked(ways, unchanged)
                if ways is far and unchanged in near:  # its own code sees it stay
                    sources = (None, *(source for source in sources if source is not None))
                doubtful = unchanged in near or unchanged in far
                found.append(Options(slot, tuple(names), sources, doubtful))
    return found


def _below(sizes: Sizes, name: str) -> dict[Source, Seen]:
    """What modules below this one see of their weights."""
    prefix = f"{name}." if name else ""
    return {
        (inner[len(prefix) :], *source): seen
        for inner, own in sizes.items()
        if inner.startswith(prefix) and inner != name
        for source, seen in own.items()
        if source[0] == "weight"
    }


Ways = dict[tuple[int, ...], list[Source]]


def _ways(own: list[dict[Source, Seen]], values: list[int | None]) -> Ways:
    """The sources that fit all instances, by what the number would become in each."""
    ways: Ways = {}
    for source in own[0]:
        seen = [one.get(source) for one in own]
        if all(s is not None and s.before == value for s, value in zip(seen, values, strict=True)):
            ways.setdefault(tuple(s.after for s in seen if s is not None), []).append(source)
    return ways


def _ranked(ways: Ways, unchanged: tuple[int, ...]) -> tuple[Source | None, ...]:
    """One source for every way, the commonest first."""
    ranked = sorted(ways, key=lambda way: -len(ways[way]))
    chosen: list[Source | None] = [ways[way][0] if way != unchanged else None for way in ranked]
    return tuple(chosen) if None in chosen else (*chosen, None)


def _numbers(module: nn.Module) -> Iterator[tuple[str, int | None, int]]:
    """The whole numbers a module keeps, in plain attributes, tuples and lists."""
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        if type(value) is int and value > 1:
            yield name, None, value
        elif isinstance(value, list | tuple) and all(type(item) is int for item in value):
            yield from ((name, place, item) for place, item in enumerate(value) if item > 1)


def read(module: nn.Module, slot: Slot) -> int | None:
    """The number in a slot, or None where this instance has none."""
    value = getattr(module, slot.attribute, None)
    if slot.place is None:
        return value if type(value) is int else None
    if isinstance(value, list | tuple) and len(value) > slot.place:
        return value[slot.place]
    return None


def write(module: nn.Module, slot: Slot, number: int) -> None:
    """Put a number into a slot."""
    if slot.place is None:
        setattr(module, slot.attribute, number)
        return
    old = getattr(module, slot.attribute)
    values = [number if place == slot.place else item for place, item in enumerate(old)]
    setattr(module, slot.attribute, type(old)(values))


def conflicts(found: Options, sizes: Sizes) -> set[frozenset[int]]:
    """Spaces that want different numbers in one slot, so that they can only shrink alike."""
    together = set()
    for name in found.modules:
        own = sizes.get(name, {})
        involved = [own[s].spaces for s in found.sources if s is not None and s in own]
        union = frozenset().union(*involved)
        if len(union) > 1:
            together.add(union)
    return together


def shared(spaces: Spaces, found: Options, sizes: Sizes) -> set[frozenset[int]]:
    """Different spaces that all change sizes which one slot fits, module by module."""
    together = set()
    modules = dict(spaces.program.model.named_modules())
    for name in found.modules:
        number = read(modules[name], found.slot)
        sets = {s.spaces for s in sizes.get(name, {}).values() if s.before == number and s.spaces}
        if len(sets) > 1:
            together.add(frozenset().union(*sets))
    return together


_SIZE_WORDS = re.compile(
    r"chan|feat|dim|width|hidden|head|size|plane|embed|inner|filter|unit|group|split|^n[fx]$"
    r"|^[cdhk]_?(in|out|model|kv|ff|inner|state)?$"
)


def names_a_size(slot: Slot) -> bool:
    """Whether an attribute's name says that it is a width, a number of heads or the like."""
    return _SIZE_WORDS.search(slot.attribute.lower()) is not None
