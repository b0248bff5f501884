"""The program of a smaller network, made from the original's without capturing it.

Both run the same operators. Sizes that are constants of the program, such as those of a view, are
replaced by what the labels say they become.
"""

from __future__ import annotations

from dataclasses import replace

from torch import fx, nn

from interpress.graph.program import Program
from interpress.surgery.cut import Cut
from interpress.surgery.graph_sizes import new_integers, set_integers_of
from interpress.surgery.new_lengths import NewLengths


def resized_program(cut: Cut, smaller: nn.Module) -> Program:
    """Return the original's program with the sizes that it has after a cut.

    Sizes that are computed from others are not followed, so compare what the program gives.
    """
    full, lengths = cut.spaces.program, NewLengths(cut)
    integers = {op.node: new_integers(op, lengths) for op in cut.spaces.trace.ops}
    changed = {node: numbers for node, numbers in integers.items() if numbers is not None}
    if not changed:
        return replace(full, model=smaller)
    copies: dict[fx.Node, fx.Node] = {}
    graph = fx.Graph()
    for node in full.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    for node, numbers in changed.items():
        if node in copies:
            set_integers_of(copies[node], numbers)
    return replace(full, nodes=tuple(copies.values()), model=smaller)
