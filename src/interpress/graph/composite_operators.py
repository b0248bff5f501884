"""Write operators of decomposed programs as the composite operators that PyTorch's layers call.

`ExportedProgram.run_decompositions` turns a batch norm into one with three outputs, and every
convolution into one operator with a flag for transposition. Both compute what the composite
operators do, which the rest of interpress knows.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from interpress.graph.program import family

_ATEN = torch.ops.aten
_CONVOLUTIONS = {1: _ATEN.conv1d, 2: _ATEN.conv2d, 3: _ATEN.conv3d}
_TRANSPOSED = {1: _ATEN.conv_transpose1d, 2: _ATEN.conv_transpose2d, 3: _ATEN.conv_transpose3d}


def as_composite(graph: fx.Graph) -> None:
    """Replace these operators in a graph, in place. The new nodes keep where they came from."""
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if family(node) == "aten._native_batch_norm_legit_no_training":
            _replace_batch_norm(graph, node)
        elif family(node) == "aten.convolution" and not node.kwargs:
            _replace_convolution(graph, node)


def _replace_batch_norm(graph: fx.Graph, node: fx.Node) -> None:
    """Replace a batch norm of which only the first output is used."""
    for use in list(node.users):
        if not use.users:
            graph.erase_node(use)
    uses = list(node.users)
    if not all(use.target is operator.getitem and use.args[1] == 0 for use in uses) or node.kwargs:
        return
    tensor, weight, bias, mean, variance, momentum, eps = node.args
    arguments = (tensor, weight, bias, mean, variance, False, momentum, eps, False)
    for use in uses:
        new = _inserted(graph, node, _ATEN.batch_norm.default, arguments, use.meta.get("val"))
        use.replace_all_uses_with(new)
        graph.erase_node(use)
    graph.erase_node(node)


def _replace_convolution(graph: fx.Graph, node: fx.Node) -> None:
    tensor, weight, bias, stride, padding, dilation, transposed, added, groups = node.args
    dims = len(stride)  # type: ignore[arg-type]
    if dims not in _CONVOLUTIONS:
        return
    if transposed:
        overloads = _TRANSPOSED[dims]
        target = overloads.default if dims == 1 else overloads.input
        arguments: tuple[Any, ...] = (
            tensor, weight, bias, stride, padding, added, groups, dilation,
        )  # fmt: skip
    else:
        target = _CONVOLUTIONS[dims].default
        arguments = (tensor, weight, bias, stride, padding, dilation, groups)
    new = _inserted(graph, node, target, arguments, node.meta.get("val"))
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _inserted(
    graph: fx.Graph, old: fx.Node, target: Any, arguments: tuple[Any, ...], value: Any
) -> fx.Node:
    with graph.inserting_before(old):
        new = graph.call_function(target, arguments)
    new.meta = {**old.meta, "val": value, "captured": new.name}
    return new
