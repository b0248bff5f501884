"""Write products of flattened rows as linear layers.

Some models flatten all rows, multiply them by a weight of shape (in, out), and restore the shape:
`addmm(bias, x.view(-1, n), weight).view(*x.shape[:-1], m)`. The layers of GPT-2 are of this kind.
The same value is `linear(x, weight.t(), bias)`, whose rows and whose place in a residual connection
are plain to see.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from interpress.graph.program import family

_VIEWS = ("aten.view", "aten.reshape", "aten._unsafe_view")


def as_linear_layers(graph: fx.Graph) -> None:
    """Replace these products in a graph, in place.

    The new node keeps the two views that it replaces in its `meta`, as "flattened" and "restored".
    """
    for node in list(graph.nodes):
        if node.op == "call_function" and family(node) == "aten.addmm" and not node.kwargs:
            _replace(graph, node)


def _replace(graph: fx.Graph, product: fx.Node) -> None:
    """Replace one product, if its rows are flattened before it and restored after it."""
    operands: Any = product.args
    bias, rows, weight = operands
    if not all(isinstance(operand, fx.Node) for operand in operands) or len(_shape(bias)) != 1:
        return
    source, last = _before_flattening(rows), product
    if source is not rows:
        (last,) = product.users if len(product.users) == 1 else (product,)
        if not _is_view(last) or _shape(last)[:-1] != _shape(source)[:-1]:
            return
        if _shape(last)[-1] != _shape(product)[-1]:
            return
    with graph.inserting_before(product):
        transposed = graph.call_function(torch.ops.aten.t.default, (weight,))
        linear = graph.call_function(torch.ops.aten.linear.default, (source, transposed, bias))
    transposed.meta = {**product.meta, "val": weight.meta["val"].t()}
    linear.meta = {**product.meta, "val": last.meta["val"]}
    if source is not rows:
        linear.meta |= {"flattened": rows, "restored": last}
    for new in (transposed, linear):
        new.meta["captured"] = new.name
    last.replace_all_uses_with(linear)
    for unused in dict.fromkeys((last, product, rows)):
        if not unused.users and unused.op == "call_function":
            graph.erase_node(unused)


def _before_flattening(rows: fx.Node) -> fx.Node:
    """Return the value whose leading dims a view merges into rows; the rows if there is none."""
    if not _is_view(rows) or not isinstance(rows.args[0], fx.Node):
        return rows
    source = rows.args[0]
    if len(_shape(source)) < 3 or _shape(source)[-1] != _shape(rows)[-1]:
        return rows
    return source


def _is_view(node: fx.Node) -> bool:
    return node.op == "call_function" and family(node) in _VIEWS


def _shape(node: fx.Node) -> list[str]:
    """Return the sizes as text, so that symbols can be compared."""
    value = node.meta.get("val")
    return [str(size) for size in value.shape] if isinstance(value, Tensor) else []
