"""Integer attributes of modules that are sizes, and where in the program these sizes occur.

A module may store integers (`num_heads`, `split_size`) that its code passes to `view` or `split`.
Such an integer follows a *source*: a dim of one of the module's weights, or of a value in its
forward pass, that had the same size. All instances of a class run the same code, so a source must
fit every instance, so usually exactly one source remains.
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
"""Where a size occurs, relative to a module: a dim of a weight, or of an operator's value."""


@dataclass(frozen=True)
class Slot:
    """An integer attribute that every instance of a module class has."""

    kind: type[nn.Module]
    attribute: str
    place: int | None
    """The index in a tuple or list, or None for a plain integer."""


@dataclass(frozen=True)
class SizeChange:
    """A size before and after a cut, and the spaces that change it."""

    before: int
    after: int
    spaces: frozenset[int]


Sizes = dict[str, dict[Source, SizeChange]]
"""Per module, the sizes that occur in its weights and in its forward pass."""


def observe_sizes(spaces: Spaces, widths: Mapping[str, int]) -> Sizes:
    """Return all sizes that modules see, before and after spaces shrink to these widths."""
    cost = spaces.cost
    shares = cost.shares(widths)
    sizes: Sizes = {}

    def record(module: str, source: Source, value: Value) -> None:
        module_sizes = sizes.setdefault(module, {})
        for dim, before in enumerate(value.shape):
            if dim in value.varying:
                continue
            after, involved = cost.length(value, dim, shares)
            changing = frozenset(involved & shares.keys())
            dim_source: Source = (*source, dim)
            module_sizes[dim_source] = SizeChange(before, after, changing)

    for name, value in spaces.trace.weights.items():
        module, _, local_name = name.rpartition(".")
        record(module, ("weight", local_name), value)
    counts: Counter[str] = Counter()
    for op in spaces.trace.ops:
        module = module_of(op.node)
        for index, value in enumerate([*op.inputs(), *op.outputs, *op.implied]):
            record(module, ("value", counts[module], op.family, index), value)
        counts[module] += 1
    return sizes


@dataclass(frozen=True)
class Candidates:
    """The sources that a slot may follow, likeliest first; None leaves the slot unchanged."""

    slot: Slot
    modules: tuple[str, ...]
    sources: tuple[Source | None, ...]
    doubtful: bool
    """Whether some source that fits keeps its size, so that the integer may have to stay."""


def modules_with_integers(
    model: nn.Module, known: tuple[type[nn.Module], ...]
) -> dict[type[nn.Module], list[str]]:
    """Return the modules with integers that may be sizes, by class.

    Modules of the `known` classes that hold tensors are left out.
    """
    kinds: dict[type[nn.Module], list[str]] = {}
    for name, module in model.named_modules():
        holds_tensors = any(
            True for _ in (*module.parameters(recurse=False), *module.buffers(recurse=False))
        )
        if not (isinstance(module, known) and holds_tensors):
            kinds.setdefault(type(module), []).append(name)
    modules = dict(model.named_modules())
    return {kind: names for kind, names in kinds.items() if any(_integers(modules[names[0]]))}


def find_candidates(
    spaces: Spaces, sizes: Sizes, known: tuple[type[nn.Module], ...]
) -> list[Candidates]:
    """Return the slots for which some source changes, with all their sources."""
    modules = dict(spaces.program.model.named_modules())
    candidates = []
    for kind, names in modules_with_integers(spaces.program.model, known).items():
        own_sizes = [sizes.get(name, {}) for name in names]
        submodule_sizes = [_submodule_weight_sizes(sizes, name) for name in names]
        for attribute, place, _ in _integers(modules[names[0]]):
            slot = Slot(kind, attribute, place)
            values = [read(modules[name], slot) for name in names]
            near, far = _outcomes(own_sizes, values), _outcomes(submodule_sizes, values)
            unchanged = tuple(value for value in values if value is not None)
            outcomes = near if any(outcome != unchanged for outcome in near) else far
            if any(outcome != unchanged for outcome in outcomes):
                sources = _ranked(outcomes, unchanged)
                if outcomes is far and unchanged in near:  # in its own code the size stays
                    sources = (None, *(source for source in sources if source is not None))
                doubtful = unchanged in near or unchanged in far
                candidates.append(Candidates(slot, tuple(names), sources, doubtful))
    return candidates


def _submodule_weight_sizes(sizes: Sizes, name: str) -> dict[Source, SizeChange]:
    """Return the sizes of the weights of all submodules, with sources relative to the module."""
    prefix = f"{name}." if name else ""
    return {
        (submodule[len(prefix) :], *source): size
        for submodule, submodule_sizes in sizes.items()
        if submodule.startswith(prefix) and submodule != name
        for source, size in submodule_sizes.items()
        if source[0] == "weight"
    }


_Outcomes = dict[tuple[int, ...], dict[tuple[frozenset[int], ...], list[Source]]]
"""The integer's new value in each instance of a class, to the sources that give these values.

They are listed by the spaces that change them: at other widths, these may give other values."""


def _outcomes(
    sizes_by_instance: list[dict[Source, SizeChange]], values: list[int | None]
) -> _Outcomes:
    """Return the sources that fit all instances, by the values they would give."""
    outcomes: _Outcomes = {}
    for source in sizes_by_instance[0]:
        changes = [sizes.get(source) for sizes in sizes_by_instance]
        if all(
            change is not None and change.before == value
            for change, value in zip(changes, values, strict=True)
        ):
            known = [change for change in changes if change is not None]
            by_spaces = outcomes.setdefault(tuple(change.after for change in known), {})
            by_spaces.setdefault(tuple(change.spaces for change in known), []).append(source)
    return outcomes


def _ranked(outcomes: _Outcomes, unchanged: tuple[int, ...]) -> tuple[Source | None, ...]:
    """Return one source for every outcome and its spaces, those with the most sources first."""
    sources: list[Source | None] = []
    for outcome in sorted(outcomes, key=lambda key: -sum(map(len, outcomes[key].values()))):
        by_spaces = sorted(outcomes[outcome].values(), key=len, reverse=True)
        sources += [found[0] for found in by_spaces] if outcome != unchanged else [None]
    return tuple(sources) if None in sources else (*sources, None)


def _integers(module: nn.Module) -> Iterator[tuple[str, int | None, int]]:
    """Yield the integers above 1 in a module's public attributes, tuples and lists."""
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        if type(value) is int and value > 1:
            yield name, None, value
        elif isinstance(value, list | tuple) and all(type(item) is int for item in value):
            yield from ((name, place, item) for place, item in enumerate(value) if item > 1)


def read(module: nn.Module, slot: Slot) -> int | None:
    """Return the integer in a slot, or None if this instance has none."""
    value = getattr(module, slot.attribute, None)
    if slot.place is None:
        return value if type(value) is int else None
    if isinstance(value, list | tuple) and len(value) > slot.place:
        return value[slot.place]
    return None


def write(module: nn.Module, slot: Slot, number: int) -> None:
    """Put an integer into a slot."""
    if slot.place is None:
        setattr(module, slot.attribute, number)
        return
    sequence = getattr(module, slot.attribute)
    values = [number if place == slot.place else item for place, item in enumerate(sequence)]
    setattr(module, slot.attribute, type(sequence)(values))


def conflicts(candidates: Candidates, sizes: Sizes) -> set[frozenset[int]]:
    """Return sets of spaces that need different integers in one slot.

    They can only shrink together, by the same share.
    """
    conflicting = set()
    for name in candidates.modules:
        module_sizes = sizes.get(name, {})
        involved = [
            module_sizes[s].spaces
            for s in candidates.sources
            if s is not None and s in module_sizes
        ]
        union = frozenset().union(*involved)
        if len(union) > 1:
            conflicting.add(union)
    return conflicting


def shared(spaces: Spaces, candidates: Candidates, sizes: Sizes) -> set[frozenset[int]]:
    """Return, per module, the spaces that change different sizes equal to the slot's integer."""
    together = set()
    modules = dict(spaces.program.model.named_modules())
    for name in candidates.modules:
        number = read(modules[name], candidates.slot)
        sets = {s.spaces for s in sizes.get(name, {}).values() if s.before == number and s.spaces}
        if len(sets) > 1:
            together.add(frozenset().union(*sets))
    return together


_SIZE_WORDS = re.compile(
    r"chan|feat|dim|width|hidden|head|size|plane|embed|inner|filter|unit|group|split|^n[fx]$"
    r"|^[cdhk]_?(in|out|model|kv|ff|inner|state)?$"
)


def names_a_size(slot: Slot) -> bool:
    """Return whether an attribute's name suggests a width, a number of heads or a similar size."""
    return _SIZE_WORDS.search(slot.attribute.lower()) is not None
