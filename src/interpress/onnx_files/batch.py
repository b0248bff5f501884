"""Files that were exported for one example are read for any number of them, where that is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from interpress.onnx_files.source import source_of

_TOLERANCE = 1e-4  # relative; products of more rows round differently


def without_fixed_batch(exact: fx.GraphModule, flexible: fx.GraphModule) -> fx.GraphModule:
    """Return the flexible network if it treats two examples as the exact one treats each of them.

    Both are of one file, and differ only if the file says a batch size of one.
    """
    if exact.code == flexible.code:
        return exact
    inputs = _inputs(exact)
    if inputs is None:
        return exact
    pair = [torch.cat(tensors) for tensors in zip(*inputs, strict=True)]
    try:
        with torch.no_grad():
            singly = [pytree.tree_leaves(exact(*one)) for one in inputs]
            together = pytree.tree_leaves(flexible(*pair))
    except Exception:  # code that was not written for it may fail in any way
        return exact
    for both, *each in zip(together, *singly, strict=True):
        expected = torch.cat(each)
        if both.shape != expected.shape or not _equal(both, expected):
            return exact
    return flexible


def measured_shapes(
    network: fx.GraphModule, nodes: Mapping[str, str]
) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes of the values of a file for one example, or None if it does not run.

    `nodes` are the nodes of the network that compute the values.
    """
    inputs = _inputs(network)
    if inputs is None:
        return None
    recorder = _Recorder(network)
    try:
        with torch.no_grad():
            recorder.run(*inputs[0])
    except Exception:  # a network that needs other numbers than random ones
        return None
    return {
        value: recorder.shapes[node] for value, node in nodes.items() if node in recorder.shapes
    }


class _Recorder(fx.Interpreter):
    """Runs a network and notes the shape of every tensor."""

    def __init__(self, network: fx.GraphModule) -> None:
        super().__init__(network)
        self.shapes: dict[str, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Tensor):
            self.shapes[n.name] = tuple(result.shape)
        return result


def _equal(a: Tensor, b: Tensor) -> bool:
    if not a.is_floating_point():
        return torch.equal(a, b)
    return bool((a - b).norm() <= _TOLERANCE * b.norm())


def _inputs(network: fx.GraphModule) -> list[list[Tensor]] | None:
    """Return two random examples; None if a shape is not known."""
    source = source_of(network)
    assert source is not None
    generator = torch.Generator().manual_seed(0)
    values = {value.name: value.type.tensor_type for value in source.proto.graph.input}
    examples: list[list[Tensor]] = [[], []]
    for name in source.inputs.values():
        kind: Any = values[name]
        shape = [dim.dim_value for dim in kind.shape.dim]
        if not shape or shape[0] != 1 or min(shape) < 1:
            return None
        for example in examples:
            random = torch.rand(shape, generator=generator)
            example.append(random if kind.elem_type == 1 else (2 * random).long())
    return examples
