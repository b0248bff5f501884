"""Decide which spaces can shrink, by shrinking all of them on a copy of the model.

The program shows which channels could be removed. It does not show whether the Python code of a
module runs with fewer channels. So all spaces are shrunk at once: first on tensors without values,
which is fast and decides which integer attributes have to change, then with values, by the
projection identity. A failure is traced to a module, and its spaces are frozen with the reason.
"""

from __future__ import annotations

from interpress.dryrun.shapes import ShapeTrial
from interpress.dryrun.values import ValueTrial
from interpress.spaces.spaces import Spaces


def settle(spaces: Spaces) -> Spaces:
    """Return the spaces with those frozen that the model's code cannot shrink.

    The result also records which size each integer attribute follows (`choices`).
    """
    spaces = ShapeTrial(spaces).settle()
    return ValueTrial(spaces).settle()
