"""Trying a surgery before it is offered: does the model's own code run with fewer channels?

The graph tells which channels could leave. Whether the Python code of a module can follow is found
out by shrinking every space at once: first on tensors without values, which is cheap and settles
which attributes have to change, then once with values, by the projection identity. What fails is
traced to its module and frozen with the reason; the rest goes on.
"""

from __future__ import annotations

from interpress.dryrun.shapes import Shapes
from interpress.dryrun.values import Values
from interpress.spaces.spaces import Spaces


def settle(spaces: Spaces) -> Spaces:
    """The spaces with those frozen that the model's code cannot shrink, and the choices made."""
    spaces = Shapes(spaces).settle()
    return Values(spaces).settle()
