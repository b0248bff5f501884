"""Which channel spaces a config of transformers can make narrower, and by which attributes.

A group is a set of spaces that the same attributes size: the MLPs of all layers, for example, by
`intermediate_size`. It is found by trying. The model is built from a changed config, and a group is
accepted if cutting its spaces gives exactly the shapes of that model.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import torch
from torch import nn

from interpress.pretrained.config_edits import (
    Edit,
    Path,
    Shapes,
    attributes,
    changed_weights,
    listed,
    shapes_from,
    shapes_of,
    write,
)
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut, shrunk_shapes

SMALL = 512  # the most heads, or dims of a head, that two attributes together are tried for


@dataclass(frozen=True)
class ConfigGroup:
    """Spaces that a config sizes together."""

    members: tuple[str, ...]
    edit: Edit
    entries: Mapping[str, int] = field(default_factory=dict)
    """Per member, its entry in the attribute, if that is a list with one size per layer. Then the
    members may have different widths."""


class ConfigGroups:
    """Finds the groups of a model of transformers."""

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces
        self._model: Any = spaces.program.model
        self._config = self._model.config
        self._before = shapes_of(self._model)
        self._touched = {space.name: self._weights_of(space) for space in spaces.shrinkable}

    def find(self) -> list[ConfigGroup]:
        """Return disjoint groups; spaces that no config can describe are in none of them."""
        groups: list[ConfigGroup] = []
        rebuilt = shapes_from(self._model, self._config)
        if changed_weights(self._before, rebuilt) != set():
            return []  # not even the model as it is
        for edit in self._edits():
            found = {name for group in groups for name in group.members}
            free = [space for space in self._spaces.shrinkable if space.name not in found]
            for members in self._alike(free):
                group = self._tried(edit, members)
                if group is not None:
                    groups.append(group)
                    break
        return groups

    def _edits(self) -> Iterator[Edit]:
        """Yield edits, the simplest first."""
        known = list(attributes(self._config))
        numbers = {path: value for path, value in known if value is not None}
        effective = [path for path in numbers if self._changes_shapes(path)]
        yield from (Edit((path,)) for path in effective)
        yield from (Edit((), unset=path) for path, value in known if value is None)
        small = [path for path in numbers if numbers[path] <= SMALL]
        for pair in itertools.combinations(small, 2):
            if any(path in effective for path in pair):
                yield Edit(pair)

    def _changes_shapes(self, path: Path) -> bool:
        """Return whether an attribute changes the shape of a weight, and adds or removes none."""
        for share in (Fraction(1, 2), Fraction(1, 3), Fraction(2, 1)):
            edited = Edit((path,)).applied(self._config, share, 1)
            if edited is None:
                continue
            changed = changed_weights(self._before, shapes_from(self._model, edited))
            if changed is not None:
                return bool(changed)
        return True  # it cannot be tried alone, as heads that must divide a width

    def _alike(self, free: Sequence[ChannelSpace]) -> list[list[ChannelSpace]]:
        """Return spaces of the same size and kind, as one group can have them."""
        by_kind: dict[Any, list[ChannelSpace]] = {}
        for space in free:
            by_kind.setdefault((space.size, space.step, space.heads), []).append(space)
        return list(by_kind.values())

    def _tried(self, edit: Edit, candidates: Sequence[ChannelSpace]) -> ConfigGroup | None:
        """Return the group that an edit sizes, if cutting some of the candidates gives it."""
        size, step = candidates[0].size, candidates[0].step
        for width in dict.fromkeys((size // 2 // step * step, size - step, step)):
            if not 0 < width < size:
                continue
            edited = edit.applied(self._config, Fraction(width, size), width)
            after = None if edited is None else shapes_from(self._model, edited)
            changed = changed_weights(self._before, after)
            if not changed or after is None:
                continue
            members = [s for s in candidates if self._touched[s.name] <= changed]
            if members and self._shapes_at(members, width) == after:
                names = tuple(space.name for space in members)
                return ConfigGroup(names, edit, self._entries(edit, members, width))
            return None
        return None

    def _entries(self, edit: Edit, members: Sequence[ChannelSpace], width: int) -> dict[str, int]:
        """Return which entry of a list sizes which space; empty if not every one has its own."""
        sizes = listed(self._config, edit.scaled[0]) if len(edit.scaled) == 1 else None
        if sizes is None or edit.unset is not None:
            return {}
        entries: dict[str, int] = {}
        for index, size in enumerate(sizes):
            edited = copy.deepcopy(self._config)
            other = size * width // members[0].size
            write(edited, edit.scaled[0], [*sizes[:index], other, *sizes[index + 1 :]])
            after = shapes_from(self._model, edited)
            alone = [space for space in members if self._shapes_at([space], width) == after]
            entries |= {space.name: index for space in alone}
        return entries if len(set(entries.values())) == len(members) else {}

    def _weights_of(self, space: ChannelSpace) -> set[str]:
        """Return the weights that change their shape if a space shrinks."""
        return changed_weights(self._before, self._shapes_at([space], space.step)) or set()

    def _shapes_at(self, members: Sequence[ChannelSpace], width: int) -> Shapes:
        kept = {space.name: _some(space, width) for space in members}
        return all_names(self._model, shrunk_shapes(Cut(self._spaces, kept)), self._before)


def all_names(model: nn.Module, shapes: Mapping[str, Any], before: Shapes) -> Shapes:
    """Return shapes by all names of a tensor that has several."""
    tensors = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    first: dict[int, str] = {}
    for name, tensor in tensors:
        first.setdefault(id(tensor), name)
    return {name: tuple(shapes.get(first[id(t)], before[name])) for name, t in tensors}


def _some(space: ChannelSpace, width: int) -> torch.Tensor:
    """Return channels of a space, the same share of every cell."""
    kept = []
    for cell in space.cells.unique().tolist():
        members = torch.nonzero(space.cells == cell).reshape(-1)
        kept.append(members[: len(members) * width // space.size])
    return torch.cat(kept).sort().values
