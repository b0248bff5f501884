"""Operators that make tensors from nothing, or only look at shapes."""

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
    """The same number everywhere: any of its members may leave."""
    return op.trace.fresh_layers(op["size"])


@rule("aten.zeros_like", "aten.ones_like", "aten.full_like", "aten.empty_like")
def constant_like(op: Op) -> Labellings:
    """The same number everywhere, in the shape of another value."""
    return op["self"].labellings


@rule(
    "aten.arange", "aten.linspace", "aten.logspace", "aten.eye", "aten.scalar_tensor",
    "aten.tril_indices", "aten.triu_indices", "aten.lift_fresh", "aten.tensor",
)  # fmt: skip
def numbers(op: Op) -> Labellings:
    """Different numbers that no weight produces."""
    return ()


@rule("aten.tril", "aten.triu")
def triangle(op: Op) -> Labellings:
    """Zeros by position, over the last two dims."""
    x = op["self"]
    return mix(op, x, [-1, -2], "treats its members by position")
