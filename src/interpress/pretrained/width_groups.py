"""Spaces that get the same width if the user asks for the same widths in all blocks.

For a model of transformers they are those that its config sizes together. For another model they
are spaces of the same name and size in blocks of the same class, as `layers.0.fc` and
`layers.1.fc`.
"""

from __future__ import annotations

from torch import nn

from interpress.pretrained.config_edits import has_config
from interpress.pretrained.config_groups import ConfigGroup, ConfigGroups
from interpress.spaces.spaces import Spaces


def config_groups(spaces: Spaces) -> list[ConfigGroup] | None:
    """Return the groups that a config can describe; None if the model has no config."""
    return ConfigGroups(spaces).find() if has_config(spaces.program.model) else None


def groups_of_blocks(spaces: Spaces) -> list[tuple[str, ...]]:
    """Return the spaces of all blocks by what they are; a space outside of blocks is alone."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for space in spaces.shrinkable:
        key = (*_without_numbers(spaces.program.model, space.name), space.size, space.step)
        groups.setdefault(key, []).append(space.name)
    return [tuple(members) for members in groups.values()]


def _without_numbers(model: nn.Module, name: str) -> tuple[object, ...]:
    """Return the name of a space with the class of a block in the place of its number."""
    base, colon, ending = name.partition(":")
    modules = dict(model.named_modules())
    parts: list[object] = []
    path = ""
    for part in base.split("."):
        container, path = modules.get(path), f"{path}.{part}" if path else part
        module = modules.get(path)
        is_block = isinstance(container, nn.ModuleList | nn.Sequential) and any(
            True for _ in (module.children() if module is not None else ())
        )
        parts.append(type(module) if is_block else part)
    return (*parts, colon + ending)
