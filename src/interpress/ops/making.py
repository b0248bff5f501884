"""Operators that create tensors, or use only the shape of their input."""

from __future__ import annotations

from interpress.labels.labelling import Labellings
from interpress.labels.relations import mix
from interpress.labels.trace import Op
from interpress.ops.registry import rule


@rule(
    "aten.zeros", "aten.ones", "aten.full", "aten.empty", "aten.new_zeros", "aten.new_ones",
    "aten.new_full", "aten.new_empty",
)  # fmt: skip
def constant(op: Op) -> Labellings:
    """Label every index of a constant tensor: any index can be dropped."""
    return op.trace.fresh_labellings(op["size"])


@rule("aten.zeros_like", "aten.ones_like", "aten.full_like", "aten.empty_like")
def constant_like(op: Op) -> Labellings:
    """Give a constant tensor the labels of the value whose shape it takes."""
    return op["self"].labellings


@rule(
    "aten.arange", "aten.linspace", "aten.logspace", "aten.eye", "aten.scalar_tensor",
    "aten.tril_indices", "aten.triu_indices", "aten.lift_fresh", "aten.tensor",
)  # fmt: skip
def numbers(op: Op) -> Labellings:
    """Return no labels: the numbers depend on the index, and no weight computes them."""
    return ()


@rule("aten.tril", "aten.triu")
def triangle(op: Op) -> Labellings:
    """Freeze channels in the last two dims, which are set to zero by position."""
    return mix(op, op["self"], [-1, -2], "sets its channels to zero by position")
