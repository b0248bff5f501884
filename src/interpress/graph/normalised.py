"""Recognise values that are read through a norm over their last dim, as the residual stream is.

A layer norm or RMS norm divides every row of the stream by its size. So an error in a row counts
relative to the size of that row. In language models this matters: the first token of a text often
has activations hundreds of times larger than all others.
"""

from __future__ import annotations

import torch
from torch import Tensor, fx

from interpress.graph.patterns import NO_EFFECT_IN_EVALUATION
from interpress.graph.program import family

_NORMS = ("aten.layer_norm", "aten.native_layer_norm", "aten.rms_norm", "aten._fused_rms_norm")
_SUMS = ("aten.add", "aten.add_")
_PASSED = (*NO_EFFECT_IN_EVALUATION, "aten.to", "aten._to_copy", "aten.view", "aten.reshape")
_TINY = 1e-12  # mean square below which a row is as good as zero


def normalised_value(node: fx.Node) -> fx.Node | None:
    """Return what a layer's output becomes before a norm reads it; None if no norm does.

    That is the output itself, or a sum that it is part of. Sums of several layers, as with parallel
    attention and MLP, are followed to the last one. All have the same rows in the same order.
    """
    while not _is_normalised(node):
        users = [user for user in node.users if user.op == "call_function"]
        if len(users) != 1 or not _keeps_rows(users[0], node):
            return None
        node = users[0]
    return node


def inverse_sizes(values: Tensor) -> Tensor:
    """Return (rows, 1): one over the root mean square of every row (rows, channels)."""
    exact = values.to(torch.promote_types(values.dtype, torch.float32))
    return exact.square().mean(-1, keepdim=True).clamp(min=_TINY).rsqrt()


def _is_normalised(node: fx.Node) -> bool:
    """Return whether a norm over the last dim reads a value, possibly after a cast."""
    for user in node.users:
        if user.op != "call_function":
            continue
        if family(user) in _NORMS:
            return True
        if family(user) in _PASSED and _keeps_rows(user, node) and _is_normalised(user):
            return True
        if family(user) == "aten.pow" and user.args[1:] == (2,):
            return any(_is_mean_over_last(reader) for reader in user.users)
    return False


def _is_mean_over_last(node: fx.Node) -> bool:
    return (
        node.op == "call_function"
        and family(node) == "aten.mean"
        and len(node.args) > 1
        and node.args[1] in ([-1], (-1,))
    )


def _keeps_rows(user: fx.Node, node: fx.Node) -> bool:
    """Return whether an operator is a sum or no change, and has the rows of its operand."""
    value, operand = user.meta.get("val"), node.meta.get("val")
    if family(user) not in (*_SUMS, *_PASSED) or not isinstance(value, Tensor):
        return False
    if not isinstance(operand, Tensor) or not value.ndim or not operand.ndim:
        return False
    if family(user) in _SUMS:
        return [str(size) for size in value.shape] == [str(size) for size in operand.shape]
    return str(value.shape[-1]) == str(operand.shape[-1])
