"""Carry over to a model what was found out on its shorter copy."""

from __future__ import annotations

from dataclasses import replace

from interpress.dryrun.inputs import weights_of
from interpress.dryrun.shorten import Shortened
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.spaces import Spaces


def transferred(
    spaces: Spaces, shortened: Shortened, before: Spaces, after: Spaces
) -> Spaces | None:
    """Return the model's spaces as those of the shorter copy turned out; None if they differ.

    `before` and `after` are the spaces of the shorter copy before and after it was tried.
    """
    counterparts: dict[str, ChannelSpace] = {}
    settled: dict[str, ChannelSpace] = {}
    for space in spaces.shrinkable:
        name = shortened.name(space.name)
        if name not in before.names or not _is_like(space, before[name]):
            return None
        counterparts[space.name] = before[name]
        found = _containing(before[name], after)
        if found is None:
            return None
        settled[space.name] = found
    reasons = {name: found.frozen for name, found in settled.items() if found.frozen is not None}
    rescaled = {
        tap
        for name, counterpart in counterparts.items()
        for tap, other in zip(spaces[name].taps, counterpart.taps, strict=True)
        if other in after.rescaled
    }
    result = replace(spaces, choices=after.choices, rescaled=frozenset(rescaled)).freeze(reasons)
    for names in _ties(shortened, counterparts, settled):
        if len({counterparts[name].name for name in names}) != len(names):
            return None  # the same space of several blocks: the copy had fewer of them
        result = result.tied(names)
    return result


def _is_like(space: ChannelSpace, other: ChannelSpace) -> bool:
    def described(one: ChannelSpace) -> tuple[object, ...]:
        return one.size, one.step, one.heads, one.in_groups, len(one.taps)

    return other.frozen is None and described(space) == described(other)


def _containing(space: ChannelSpace, after: Spaces) -> ChannelSpace | None:
    """Return the space that a space of the shorter copy is now, or is now a part of."""
    if space.name in after.names:
        return after[space.name]
    weights = set(weights_of(space))
    alike = [s for s in after if (s.heads, s.in_groups) == (space.heads, space.in_groups)]
    fitting = [s for s in alike if weights <= set(weights_of(s))]
    return fitting[0] if len(fitting) == 1 else None


def _ties(
    shortened: Shortened,
    counterparts: dict[str, ChannelSpace],
    settled: dict[str, ChannelSpace],
) -> list[list[str]]:
    """Return the spaces of the model that must shrink together, block by block."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, found in settled.items():
        if found.size != counterparts[name].size:  # it was merged with others
            groups.setdefault((shortened.block(name), found.name), []).append(name)
    return [names for names in groups.values() if len(names) > 1]
