"""Find the channel spaces of a captured program, from its operators alone.

Whether the model's Python code also runs with fewer channels is decided in `interpress.dryrun`.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from interpress.errors import ArgumentError
from interpress.graph.program import Program
from interpress.labels.trace import Trace
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.classes import classify, united
from interpress.spaces.follow import follow
from interpress.spaces.grouping import Draft, Grouping
from interpress.spaces.head_grouping import HeadGrouping
from interpress.spaces.membership import Membership, membership_of
from interpress.spaces.shared_heads import settle_copies
from interpress.spaces.spaces import Spaces
from interpress.spaces.tap_finder import TapFinder
from interpress.spaces.taps import Tap

_Roles = dict[str, dict[str, None]]
"""Per role ("producer", "carrier", "consumer", "tap"), the names in it, in order."""


def spaces_of(program: Program, exclude: Iterable[str] = ()) -> Spaces:
    """Return the channel spaces of a program; `exclude` names modules that must not change."""
    patterns = (exclude,) if isinstance(exclude, str) else tuple(exclude)
    with torch.random.fork_rng():  # the model may draw random numbers
        trace = follow(program)
    settle_copies(trace, united(trace))
    _freeze_excluded(trace, patterns)
    classes = classify(trace)
    finder = TapFinder(trace, classes)
    taps = finder.find()
    grouping = Grouping(trace, classes, taps, finder.problems)
    heads = HeadGrouping(grouping)
    drafts = sorted(
        [*grouping.channels(), *heads.drafts],
        key=lambda draft: grouping.first_label(draft.classes[0]),
    )
    membership = membership_of(drafts, [classes.channel, *heads.class_of_label])
    taps_by_name = {tap.name: tap for tap in taps}
    spaces = _describe(trace, drafts, membership, taps_by_name)
    return Spaces(program, trace, spaces, taps_by_name, membership)


def _freeze_excluded(trace: Trace, patterns: tuple[str, ...]) -> None:
    """Freeze all weights that a pattern matches by any of their names."""
    model = trace.program.model
    modules = [name for name, _ in model.named_modules(remove_duplicate=False)]
    tensors: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    tensors |= dict(model.named_buffers(remove_duplicate=False))
    canonical = {id(tensors[name]): name for name in trace.weights}
    for pattern in patterns:
        if not any(matches_pattern(name, pattern) for name in [*modules[1:], *tensors]):
            raise ArgumentError(
                f"the exclude pattern {pattern!r} matches no module; module names look like "
                f"{', '.join(repr(name) for name in modules[1:4])}"
            )
        for name, tensor in tensors.items():
            if matches_pattern(name, pattern) and id(tensor) in canonical:
                for labelling in trace.weights[canonical[id(tensor)]].labellings:
                    trace.freeze(labelling.labels, f"{name} is excluded by the pattern {pattern!r}")


def matches_pattern(name: str, pattern: str) -> bool:
    """Return whether the pattern matches a name or a module that contains it."""
    parts = name.split(".")
    return any(
        fnmatch.fnmatchcase(".".join(parts[: end + 1]), pattern) for end in range(len(parts))
    )


def _describe(
    trace: Trace, drafts: list[Draft], membership: Membership, taps: Mapping[str, Tap]
) -> tuple[ChannelSpace, ...]:
    """Return the drafts as channel spaces with names and roles."""
    roles = _roles(trace, len(drafts), membership, taps)
    names = _names(drafts, roles)
    return tuple(
        ChannelSpace(
            name=names[i],
            size=len(draft.classes),
            cells=torch.tensor(draft.cells or [0] * len(draft.classes)),
            step=draft.step if draft.frozen is None else len(draft.classes),
            heads=draft.level > 0,
            in_groups=draft.is_in_groups,
            producers=tuple(roles[i]["producer"]),
            carriers=tuple(roles[i]["carrier"]),
            consumers=tuple(roles[i]["consumer"]),
            taps=tuple(roles[i]["tap"]),
            frozen=draft.frozen or (None if roles[i]["tap"] else "no weight reads it"),
        )
        for i, draft in enumerate(drafts)
    )


def _roles(
    trace: Trace, count: int, membership: Membership, taps: Mapping[str, Tap]
) -> list[_Roles]:
    """Return, for each of `count` spaces, its producers, carriers, consumers and taps."""
    produced = torch.zeros(trace.size, dtype=torch.bool)
    for labels in trace.produced:
        produced[labels.reshape(-1)] = True
    absorbers = {(a.weight, a.dim): a for tap in taps.values() for a in tap.absorbers}
    roles: list[_Roles] = [
        {"producer": {}, "carrier": {}, "consumer": {}, "tap": {}} for _ in range(count)
    ]
    for weight, value in trace.weights.items():
        for labelling in value.channels():
            labels = labelling.labels.reshape(-1)
            absorber = absorbers.get((weight, labelling.support[-1]))
            weight_roles = [] if absorber is None else ["consumer"]
            if absorber is None or bool((absorber.column < 0).any()):  # some entries are selected
                weight_roles.append("producer" if bool(produced[labels].any()) else "carrier")
            for index in membership.spaces_in(labels):
                for role in weight_roles:
                    roles[index][role][weight] = None
    for name, tap in taps.items():
        for index in membership.spaces_in(tap.labels):
            roles[index]["tap"][name] = None
    return roles


def _names(drafts: list[Draft], roles: list[_Roles]) -> list[str]:
    """Name every space after the module of its first weight; number duplicates from `#2`."""
    names: list[str] = []
    for draft, role in zip(drafts, roles, strict=True):
        weight = next(iter([*role["producer"], *role["carrier"], *role["consumer"]]), "space")
        base = weight.rpartition(".")[0] if weight.endswith((".weight", ".bias")) else weight
        base = (base or weight) + draft.ending
        name, number = base, 2
        while name in names:
            name, number = f"{base}#{number}", number + 1
        names.append(name)
    return names
