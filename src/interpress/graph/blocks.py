"""Cut a program into blocks: stretches of operators between which few values are alive."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor, fx
from torch.utils import _pytree as pytree

from interpress.graph.program import Program, usual_size

_WIDEST = 2.0
"""A cut may hold this many times the bytes of the narrowest one."""


@dataclass(frozen=True, eq=False)
class Block:
    """A stretch of consecutive operators."""

    nodes: tuple[fx.Node, ...]

    @cached_property
    def members(self) -> frozenset[fx.Node]:
        """The same nodes, to look up."""
        return frozenset(self.nodes)

    def __contains__(self, node: fx.Node) -> bool:
        return node in self.members


def split(
    program: Program,
    groups: Iterable[Collection[fx.Node]],
    inseparable: Iterable[Collection[fx.Node]] = (),
) -> list[Block]:
    """Return the blocks of a program; the nodes of a group stay in one block.

    A block ends where little has to be kept for later operators: usually the stream that residual
    layers add to. Every block has nodes of some group. What is `inseparable` stays in one block as
    well, but need not have one.
    """
    operators = list(program.operators())
    position = {node: index for index, node in enumerate(operators)}
    allowed = [True] * (len(operators) + 1)
    starts = [False] * (len(operators) + 1)
    for group, is_measured in [*((g, True) for g in groups), *((g, False) for g in inseparable)]:
        places = [position[node] for node in group if node in position]
        if places:
            starts[min(places)] |= is_measured
            for index in range(min(places) + 1, max(places) + 1):
                allowed[index] = False
    alive = _bytes_alive(operators, position)
    begun = [index for index, start in enumerate(starts) if start]
    narrowest = []
    for first, second in itertools.pairwise(begun):
        between = [index for index in range(first + 1, second + 1) if allowed[index]]
        if between:
            narrowest.append(min(between, key=alive.__getitem__))
    if not narrowest or program.writes_through_views:
        return [Block(tuple(operators))]
    most = _WIDEST * min(alive[index] for index in narrowest)
    cuts = [0, *(index for index in narrowest if alive[index] <= most)]
    ends = [*cuts[1:], len(operators)]
    return [Block(tuple(operators[a:b])) for a, b in zip(cuts, ends, strict=True)]


def border_bytes(program: Program, blocks: Sequence[Block]) -> int:
    """Return the most bytes of values that are alive between two blocks, for the example."""
    return bytes_before(program, [block.nodes[0] for block in blocks[1:]])


def bytes_before(program: Program, nodes: Iterable[fx.Node]) -> int:
    """Return the most bytes of values that are alive before one of some nodes, for the example."""
    operators = list(program.operators())
    position = {node: index for index, node in enumerate(operators)}
    alive = _bytes_alive(operators, position)
    return max((alive[position[node]] for node in nodes), default=0)


def _bytes_alive(operators: list[fx.Node], position: dict[fx.Node, int]) -> list[int]:
    """Return, per position, the bytes of the values computed before it and needed after it."""
    change = [0] * (len(operators) + 2)
    for index, node in enumerate(operators):
        last = max((position.get(user, len(operators)) for user in node.users), default=index)
        if last > index:
            size = _size(node)
            change[index + 1] += size
            change[last + 1] -= size
    alive, total = [], 0
    for index in range(len(operators) + 1):
        total += change[index]
        alive.append(total)
    return alive


def _size(node: fx.Node) -> int:
    values = pytree.tree_leaves(node.meta.get("val"))
    return sum(
        math.prod(usual_size(size) for size in value.shape) * value.element_size()
        for value in values
        if isinstance(value, Tensor)
    )
