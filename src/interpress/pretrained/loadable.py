"""Which widths a config of transformers accepts: the heads must often divide the hidden size."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from interpress.pretrained.config_groups import SMALL, ConfigGroup

_Widths = Mapping[str, list[int]]


def loadable_widths(
    config: Any, groups: Sequence[ConfigGroup], allowed: _Widths
) -> dict[str, list[int]]:
    """Return the allowed widths, per first member of a group, without those that do not load.

    Groups that change the same attribute are tried together: a width stays if it loads with every
    width of the groups before it. Large groups, such as neurons, are not tried.
    """
    tried = [g for g in groups if g.members[0] in allowed and allowed[g.members[0]][0] <= SMALL]
    if not tried or not _loads(config):
        return dict(allowed)
    result = dict(allowed)
    for number, group in enumerate(tried):
        near = [g for g in tried[:number] if set(g.edit.scaled) & set(group.edit.scaled)]
        name = group.members[0]
        whole = allowed[name][0]
        others = [[(other, width) for width in result[other.members[0]]] for other in near]
        result[name] = [
            width
            for width in allowed[name]
            if width == whole
            or all(
                _loads(_edited(config, [*chosen, (group, width)], allowed))
                for chosen in itertools.product(*others)
            )
        ]
    return result


def _edited(config: Any, widths: Sequence[tuple[ConfigGroup, int]], allowed: _Widths) -> Any | None:
    """Return a changed copy of a config; None if a value would not be a whole number."""
    for group, width in widths:
        if config is not None:
            whole = allowed[group.members[0]][0]
            config = group.edit.applied(config, Fraction(width, whole), width)
    return config


def _loads(config: Any | None) -> bool:
    """Return whether a config can be read again, as `from_pretrained` does."""
    if config is None:
        return False
    try:
        type(config).from_dict(config.to_dict())
    except Exception:  # a config may check what it is given
        return False
    return True
