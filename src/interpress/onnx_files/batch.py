"""Files that were exported for one batch size are read for any, where that is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from interpress.graph.batch_size import same_for_each_batch
from interpress.graph.example import Example
from interpress.graph.recorded_shapes import RecordedShapes
from interpress.onnx_files.source import source_of


def without_fixed_batch(exact: fx.GraphModule, flexible: fx.GraphModule) -> fx.GraphModule:
    """Return the flexible network if it treats two batches as the exact one treats each of them.

    Both are of one file, which says a batch size. They differ only if operators say it too.
    """
    if exact.code == flexible.code:
        return exact
    inputs = _inputs(exact)
    if inputs is None:
        return exact
    examples = [Example(tuple(one)) for one in inputs]
    return flexible if same_for_each_batch(exact, flexible, examples) else exact


def measured_shapes(
    network: fx.GraphModule, nodes: Mapping[str, str]
) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes of the values of a file for its batch size, or None if it does not run.

    `nodes` are the nodes of the network that compute the values.
    """
    inputs = _inputs(network)
    if inputs is None:
        return None
    recorder = RecordedShapes(network)
    try:
        with torch.no_grad():
            recorder.run(*inputs[0])
    except Exception:  # a network that needs other numbers than random ones
        return None
    return {
        value: recorder.shapes[node] for value, node in nodes.items() if node in recorder.shapes
    }


def _inputs(network: fx.GraphModule) -> list[list[Tensor]] | None:
    """Return two random batches of the size that the file says; None if a shape is not known."""
    source = source_of(network)
    assert source is not None
    generator = torch.Generator().manual_seed(0)
    values = {value.name: value.type.tensor_type for value in source.proto.graph.input}
    examples: list[list[Tensor]] = [[], []]
    for name in source.inputs.values():
        kind: Any = values[name]
        shape = [dim.dim_value for dim in kind.shape.dim]
        if not shape or shape[0] != source.fixed_batch or min(shape) < 1:
            return None
        for example in examples:
            random = torch.rand(shape, generator=generator)
            example.append(random if kind.elem_type == 1 else (2 * random).long())
    return examples
