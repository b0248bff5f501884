"""`find_spaces`: find the channel spaces of a model and check that they can shrink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from interpress.dryrun.settle import settle
from interpress.formats.network_formats import as_network
from interpress.graph.capture import capture
from interpress.graph.example import Example
from interpress.graph.garbage import old_objects_set_aside
from interpress.graph.model_state import unwrap
from interpress.progress import stages
from interpress.spaces.from_program import spaces_of
from interpress.spaces.spaces import Spaces


def find_spaces(
    model: Any, example: Any, *, exclude: Sequence[str] = (), progress: bool | None = None
) -> Spaces:
    """Return the channel spaces of a network: the sets of channels that can be removed together.

    `model` is a network, an exported program, or the path of a `.pt2` or ONNX file. `example` is
    what its forward takes: a tensor, a tuple of positional inputs, or a dict of keyword inputs.
    `exclude` names modules that must not change, by patterns such as `"layer4.*"`. Every shrinkable
    space has been shrunk once on a copy of the model, and the result was proved by the projection
    identity. Every other space is frozen, with a reason. `print` the result for a table. The model
    is not changed.
    """
    with (
        torch.inference_mode(False),
        old_objects_set_aside(),
        stages("Finding channel spaces", 3, progress) as step,
    ):
        model = as_network(model)
        program = capture(model, Example.of(example).without_cache(unwrap(model)))
        step("following channels")
        spaces = spaces_of(program, exclude)
        step("trying to shrink")
        return settle(spaces)
