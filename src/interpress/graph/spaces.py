"""Channel spaces: which channels of a network can leave together, and who would notice."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from interpress.cost import CostModel
from interpress.errors import ArgumentError
from interpress.graph.classes import classify
from interpress.graph.graph import Graph, captured_name
from interpress.graph.grouping import Draft, Grouping
from interpress.graph.membership import Membership, membership_of
from interpress.graph.table import render
from interpress.graph.taps import Tap, TapFinder
from interpress.graph.trace import Trace, follow


@dataclass(frozen=True, eq=False)
class ChannelSpace:
    """A set of channels that live in the same tensors everywhere.

    `size` channels; any multiple of `step` may stay, the same share of every cell (a head, a
    group of a convolution). A frozen space may not shrink; `frozen` says why.
    """

    name: str
    size: int
    cells: Tensor
    """Per channel, its cell. Cells shrink by the same share."""
    step: int
    heads: bool = False
    """Whether its members are whole attention heads rather than single channels."""
    producers: tuple[str, ...] = ()
    carriers: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    taps: tuple[str, ...] = ()
    frozen: str | None = None

    def widths(self) -> range:
        """The widths this space can have, smallest first."""
        return (
            range(self.size, self.size + 1)
            if self.frozen
            else range(self.step, self.size + 1, self.step)
        )

    def check(self, kept: Tensor | Sequence[int]) -> Tensor:
        """`kept` as sorted indices, or an error that says what is wrong with it."""
        where = f"space {self.name!r}"
        given = torch.as_tensor(kept).reshape(-1).cpu()
        if given.dtype == torch.bool and given.numel() == self.size:
            given = torch.nonzero(given).reshape(-1)
        if given.numel() and (given.is_floating_point() or given.dtype == torch.bool):
            raise ArgumentError(
                f"{where}: kept is {given.dtype} of {given.numel()}; pass whole numbers, or a mask "
                f"of {self.size}"
            )
        index = given.long()
        if index.numel() == 0:
            raise ArgumentError(f"{where}: nothing is kept; keep at least {self.step} channels")
        if int(index.min()) < 0 or int(index.max()) >= self.size:
            bad = int(index.min()) if int(index.min()) < 0 else int(index.max())
            raise ArgumentError(
                f"{where}: channel {bad} does not exist; it has {self.size}, numbered from 0"
            )
        ordered = index.unique()
        if ordered.numel() != index.numel():
            raise ArgumentError(f"{where}: a channel is kept twice; name every channel once")
        if self.frozen and ordered.numel() < self.size:
            raise ArgumentError(f"{where} is frozen: {self.frozen}; leave it out of the plan")
        full = torch.bincount(self.cells)
        have = torch.bincount(self.cells[ordered], minlength=len(full))
        if bool((have * self.size != full * ordered.numel()).any()):
            raise ArgumentError(
                f"{where}: its {len(full)} cells must keep the same share, got "
                f"{have.tolist()} of {full.tolist()}; keep a multiple of {self.step} channels, "
                "equally many in every cell"
            )
        return ordered


@dataclass(frozen=True, eq=False)
class Spaces(Sequence[ChannelSpace]):
    """All channel spaces of a network, with the graph they were found in."""

    graph: Graph
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
        return CostModel(self)

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
        used = {
            self.graph.weights.get(captured_name(node))
            for node in self.graph.nodes
            if node.op == "placeholder" and node.users
        }
        return tuple(name for name, _ in self.graph.model.named_parameters() if name not in used)

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
            merged = _union(merged, other)
        spaces[first] = merged
        return replace(self, all=tuple(spaces), membership=membership)

    def index(self, value: ChannelSpace, start: int = 0, stop: int | None = None) -> int:
        """The place of a space."""
        return self.names.index(value.name, start, stop or len(self.all))

    def __str__(self) -> str:
        return render(self)

    __repr__ = __str__


def _union(first: ChannelSpace, second: ChannelSpace) -> ChannelSpace:
    cells = torch.cat([first.cells, second.cells + int(first.cells.max()) + 1])
    size = first.size + second.size
    roles: dict[str, Any] = {
        role: tuple(dict.fromkeys(getattr(first, role) + getattr(second, role)))
        for role in ("producers", "carriers", "consumers", "taps")
    }
    step = size // math.gcd(*torch.bincount(cells).tolist())
    return replace(first, size=size, cells=cells, step=step, **roles)


def spaces_of(graph: Graph, freeze: Iterable[str] = ()) -> Spaces:
    """The channel spaces of a captured graph, as the graph alone tells."""
    patterns = (freeze,) if isinstance(freeze, str) else tuple(freeze)
    with torch.random.fork_rng():  # a forward may draw numbers; the user's stay as they were
        trace = follow(graph)
    _freeze_by_name(trace, patterns)
    classes = classify(trace)
    finder = TapFinder(trace, classes)
    taps = finder.find()
    grouping = Grouping(trace, classes, taps, finder.problems)
    heads, slab_of = grouping.heads()
    drafts = sorted(
        [*grouping.channels(), *heads], key=lambda d: grouping.first_label(d.classes[0])
    )
    membership = membership_of(drafts, classes.channel, slab_of)
    named = {tap.name: tap for tap in taps}
    described = _describe(trace, drafts, membership, named)
    return Spaces(graph, trace, described, named, membership)


def _freeze_by_name(trace: Trace, patterns: tuple[str, ...]) -> None:
    model = trace.graph.model
    modules = [name for name, _ in model.named_modules(remove_duplicate=False)]
    tensors: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    tensors |= dict(model.named_buffers(remove_duplicate=False))
    canonical = {id(tensors[name]): name for name in trace.weights}
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in [*modules[1:], *tensors]):
            raise ArgumentError(
                f"freeze pattern {pattern!r} matches no module; module names look like "
                f"{', '.join(repr(name) for name in modules[1:4])}"
            )
        for name, tensor in tensors.items():
            if _matches(name, pattern) and id(tensor) in canonical:
                for layer in trace.weights[canonical[id(tensor)]].layers:
                    trace.freeze(layer.labels, f"{name} is frozen by the pattern {pattern!r}")


def _matches(name: str, pattern: str) -> bool:
    """Whether a name, or a module above it, fits the pattern."""
    parts = name.split(".")
    return any(
        fnmatch.fnmatchcase(".".join(parts[: end + 1]), pattern) for end in range(len(parts))
    )


def _describe(
    trace: Trace, drafts: list[Draft], membership: Membership, taps: Mapping[str, Tap]
) -> tuple[ChannelSpace, ...]:
    produced = torch.zeros(trace.size, dtype=torch.bool)
    for labels in trace.produced:
        produced[labels.reshape(-1)] = True
    absorbing = {(a.weight, a.dim): a for tap in taps.values() for a in tap.absorbers}
    roles: list[dict[str, dict[str, None]]] = [
        {"producer": {}, "carrier": {}, "consumer": {}, "tap": {}} for _ in drafts
    ]
    for weight, value in trace.weights.items():
        for layer in value.channels():
            labels = layer.labels.reshape(-1)
            absorber = absorbing.get((weight, layer.support[-1]))
            absorbs = absorber is not None
            selects = absorber is None or bool((absorber.column < 0).any())
            own = (["consumer"] if absorbs else []) + (
                [] if not selects else ["producer" if bool(produced[labels].any()) else "carrier"]
            )
            for index in membership.spaces_in(labels):
                for role in own:
                    roles[index][role][weight] = None
    for name, tap in taps.items():
        for index in membership.spaces_in(tap.labels):
            roles[index]["tap"][name] = None
    names = _names(drafts, roles)
    return tuple(
        ChannelSpace(
            name=names[i],
            size=len(draft.classes),
            cells=torch.tensor(draft.cells or [0] * len(draft.classes)),
            step=draft.step if draft.frozen is None else len(draft.classes),
            heads=draft.heads,
            producers=tuple(roles[i]["producer"]),
            carriers=tuple(roles[i]["carrier"]),
            consumers=tuple(roles[i]["consumer"]),
            taps=tuple(roles[i]["tap"]),
            frozen=draft.frozen or (None if roles[i]["tap"] else "no weight reads it"),
        )
        for i, draft in enumerate(drafts)
    )


def _names(drafts: list[Draft], roles: list[dict[str, dict[str, None]]]) -> list[str]:
    names: list[str] = []
    for draft, role in zip(drafts, roles, strict=True):
        weight = next(iter([*role["producer"], *role["carrier"], *role["consumer"]]), "space")
        base = weight.rpartition(".")[0] if weight.endswith((".weight", ".bias")) else weight
        base = f"{base or weight}:heads" if draft.heads else base or weight
        name, number = base, 2
        while name in names:
            name, number = f"{base}#{number}", number + 1
        names.append(name)
    return names
