"""Spaces that could shrink, but that a call keeps whole, each with the reason."""

from __future__ import annotations

from interpress.calibration.study import Study
from interpress.selection.profile import is_measurable
from interpress.spaces.spaces import Spaces

_UNMEASURABLE = "no layer reads all of its channels, so calibration cannot measure it"
_ONE_HEAD_SIZE = "the config has one head size, so same_widths keeps all heads"
_NOT_IN_CONFIG = "no attribute of the config sizes it, so same_widths keeps it whole"


def measurable(spaces: Spaces) -> Spaces:
    """Freeze the spaces whose channels calibration cannot measure."""
    names = [space.name for space in spaces.shrinkable if not is_measurable(spaces, space)]
    return spaces.freeze(dict.fromkeys(names, _UNMEASURABLE))


def of_same_widths(study: Study) -> Spaces:
    """Freeze the spaces that `same_widths=True` keeps whole: they are in no group."""
    grouped = {name for group in study.width_groups for name in group}
    return study.spaces.freeze(
        {
            space.name: _ONE_HEAD_SIZE if space.heads else _NOT_IN_CONFIG
            for space in study.spaces.shrinkable
            if space.name not in grouped
        }
    )
