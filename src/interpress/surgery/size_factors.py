"""Integers that sizes are computed with, such as the heads in `x.view(batch * 4, -1, 8)`.

Such a size is a product of the batch size and a number, computed by a node of its own. If the dim
becomes shorter, that number does.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from torch import fx

from interpress.graph.program import is_plain_integer
from interpress.labels.trace import Op
from interpress.surgery.argument_sizes import gives_whole_shape
from interpress.surgery.new_lengths import NewLengths


def changed_factors(
    op: Op, caller: fx.Node, lengths: NewLengths
) -> Iterator[tuple[fx.Node, tuple[int, int]]]:
    """Yield nodes that multiply the batch size, with their number before and after the cut.

    `caller` is the node of the graph module that the operator came from.
    """
    if not gives_whole_shape(op):
        return
    value = op.outputs[0]
    for dim, size in zip(range(len(value.shape)), _sizes(caller), strict=False):
        product = _product(size)
        if product is not None and value.shape[dim]:
            number: Any = next(n for n in product.args if is_plain_integer(n))
            after = number * Fraction(lengths.with_batch(value, dim), value.shape[dim])
            if after.denominator == 1:
                yield product, (number, int(after))


def _sizes(caller: fx.Node) -> list[Any]:
    """Return the sizes that a view or a similar call gets, one by one or in a list."""
    arguments = list(caller.args)
    if arguments and isinstance(arguments[0], fx.Node):
        arguments = arguments[1:]  # the tensor
    if arguments and isinstance(arguments[0], list | tuple):
        return list(arguments[0])
    return arguments


def _product(size: Any) -> fx.Node | None:
    """Return the product of something and a number that a size is, or has as a factor."""
    current = size
    while isinstance(current, fx.Node) and current.target is operator.mul:
        if sum(is_plain_integer(argument) for argument in current.args) == 1:
            return current
        current = next((a for a in current.args if isinstance(a, fx.Node)), None)
    return None
