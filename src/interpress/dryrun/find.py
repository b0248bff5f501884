"""`find_spaces`: from a model and an example to its channel spaces, tried and proved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from interpress.dryrun.settle import settle
from interpress.graph.capture import capture
from interpress.progress import stages
from interpress.spaces.from_program import spaces_of
from interpress.spaces.spaces import Spaces


def find_spaces(
    model: nn.Module, example: Any, *, exclude: Sequence[str] = (), progress: bool | None = None
) -> Spaces:
    """Find the channel spaces of a network: which channels can leave together.

    `example` is what the model's forward takes: a tensor, a tuple of positional inputs, or a dict
    of keyword inputs. `exclude` names modules (patterns such as `"layer4.*"`) that must not change.
    Every space offered as shrinkable has been shrunk once on a copy and the result proved by the
    projection identity; every other one carries its reason. `print` the result for a table. The
    model is left as it was.
    """
    with stages("Finding channel spaces", 3, progress) as step:
        program = capture(model, example)
        step("following channels")
        spaces = spaces_of(program, exclude)
        step("trying surgery")
        return settle(spaces)
