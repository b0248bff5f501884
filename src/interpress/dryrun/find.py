"""`find_spaces`: find the channel spaces of a model and check that they can shrink."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from interpress.dryrun.settle import settle
from interpress.formats.network_formats import as_network
from interpress.graph.capture import capture
from interpress.graph.example import Example
from interpress.graph.garbage import old_objects_set_aside
from interpress.graph.model_state import unwrap
from interpress.graph.snapshot import has_values
from interpress.progress import stages
from interpress.spaces.from_program import spaces_of
from interpress.spaces.spaces import Spaces


def find_spaces(
    model: Any, example: Any, *, exclude: Sequence[str] = (), progress: bool | None = None
) -> Spaces:
    """Return the channel spaces of a network; arguments as for `interpress.find_spaces`."""
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
        return settle(_without_shared_memory(spaces))


def _without_shared_memory(spaces: Spaces) -> Spaces:
    """Freeze the spaces of parameters that are views of the same memory.

    Surgery gives every parameter memory of its own, so such a tie would be lost. Equal biases may
    share memory by accident, as in files that hold equal tensors once.
    """
    tensors = {
        name: tensor
        for name, tensor in spaces.program.parameters().items()
        if tensor.ndim > 1 and tensor.numel() and has_values(tensor)
        if name in spaces.trace.weights
    }
    starts = sorted(tensors, key=lambda name: (str(tensors[name].device), tensors[name].data_ptr()))
    reasons: dict[str, str] = {}
    for one, other in itertools.pairwise(starts):
        first, second = tensors[one], tensors[other]
        extent = sum((n - 1) * s for n, s in zip(first.shape, first.stride(), strict=True)) + 1
        end = first.data_ptr() + extent * first.element_size()
        if first.device == second.device and second.data_ptr() < end:
            for name in (one, other):
                value = spaces.trace.weights[name]
                for dim in range(len(value.shape)):
                    _, along = spaces.cost.length(value, dim, {})
                    why = f"{one} and {other} are views of the same weight in memory"
                    reasons |= dict.fromkeys((spaces.all[index].name for index in along), why)
    return spaces.freeze({n: why for n, why in reasons.items() if spaces[n].frozen is None})
