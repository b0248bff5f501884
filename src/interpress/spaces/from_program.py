"""From a captured program to its channel spaces, as far as the operators alone can tell."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from interpress.errors import ArgumentError
from interpress.graph.program import Program
from interpress.labels.trace import Trace
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.classes import classify
from interpress.spaces.follow import follow
from interpress.spaces.grouping import Draft, Grouping
from interpress.spaces.membership import Membership, membership_of
from interpress.spaces.spaces import Spaces
from interpress.spaces.tap_finder import TapFinder
from interpress.spaces.taps import Tap


def spaces_of(program: Program, exclude: Iterable[str] = ()) -> Spaces:
    """The channel spaces of a captured graph, as the graph alone tells."""
    patterns = (exclude,) if isinstance(exclude, str) else tuple(exclude)
    with torch.random.fork_rng():  # a forward may draw numbers; the user's stay as they were
        trace = follow(program)
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
    return Spaces(program, trace, described, named, membership)


def _freeze_by_name(trace: Trace, patterns: tuple[str, ...]) -> None:
    model = trace.program.model
    modules = [name for name, _ in model.named_modules(remove_duplicate=False)]
    tensors: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    tensors |= dict(model.named_buffers(remove_duplicate=False))
    canonical = {id(tensors[name]): name for name in trace.weights}
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in [*modules[1:], *tensors]):
            raise ArgumentError(
                f"the exclude pattern {pattern!r} matches no module; module names look like "
                f"{', '.join(repr(name) for name in modules[1:4])}"
            )
        for name, tensor in tensors.items():
            if _matches(name, pattern) and id(tensor) in canonical:
                for labelling in trace.weights[canonical[id(tensor)]].labellings:
                    trace.freeze(labelling.labels, f"{name} is excluded by the pattern {pattern!r}")


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
        for labelling in value.channels():
            labels = labelling.labels.reshape(-1)
            absorber = absorbing.get((weight, labelling.support[-1]))
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
