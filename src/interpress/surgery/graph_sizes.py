"""Sizes that are written into the nodes of an `fx.GraphModule`.

The code of such a module is a graph, so its sizes are arguments of nodes: those of a view, the
lengths of a split, the groups of a convolution. Capture records which node every operator came from
(`interpress.graph.traced_nodes`), and the labels say how long every dim becomes. So it is known
which number follows which size, and nothing has to be tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from torch import fx, nn

from interpress.graph.program import is_plain_integer
from interpress.graph.traced_nodes import Origin, graph_modules
from interpress.labels.trace import Op
from interpress.surgery.argument_sizes import new_arguments
from interpress.surgery.cut import Cut
from interpress.surgery.new_lengths import NewLengths
from interpress.surgery.size_factors import changed_factors

Rewritten = dict[Origin, list[int]]
"""Per node, its integers after the cut, in the order in which they occur in its arguments."""


def update_graph_sizes(cut: Cut, smaller: nn.Module) -> None:
    """Write the sizes after a cut into the nodes of all graph modules of a smaller copy."""
    modules = graph_modules(smaller)
    if modules:
        set_integers(smaller, _after(cut, modules))


def set_integers(model: nn.Module, rewritten: Mapping[Origin, list[int]]) -> None:
    """Replace the integers of nodes. Each list has one number for every integer of its node."""
    for path, module in graph_modules(model).items():
        nodes = {node.name: node for node in module.graph.nodes}
        names = [name for owner, name in rewritten if owner == path and name in nodes]
        for name in names:
            set_integers_of(nodes[name], rewritten[(path, name)])
        if names:
            module.recompile()


def changed_integers(original: nn.Module, smaller: nn.Module) -> Rewritten:
    """Return the nodes whose integers differ between a model and its smaller copy."""
    changed = {}
    copies = graph_modules(smaller)
    for path, module in graph_modules(original).items():
        new = {node.name: integers_of(node) for node in copies[path].graph.nodes}
        for node in module.graph.nodes:
            if new[node.name] != integers_of(node):
                changed[(path, node.name)] = new[node.name]
    return changed


def integers_of(node: fx.Node) -> list[int]:
    """Return the integers among a node's arguments, in order."""
    found: list[int] = []

    def collect(leaf: Any) -> Any:
        if is_plain_integer(leaf):
            found.append(leaf)
        return leaf

    fx.node.map_aggregate((node.args, node.kwargs), collect)
    return found


def new_integers(op: Op, lengths: NewLengths) -> list[int] | None:
    """Return the integers among the arguments of a captured operator after a cut.

    None if none of them changes.
    """
    pairs = _pairs(op, lengths)[: len(integers_of(op.node))]
    changes = any(before != after for before, after in pairs)
    return [after for _, after in pairs] if changes else None


def set_integers_of(node: fx.Node, numbers: list[int]) -> None:
    """Replace the integers among a node's arguments, in order."""
    remaining = iter(numbers)

    def replaced(leaf: Any) -> Any:
        return next(remaining) if is_plain_integer(leaf) else leaf

    arguments: Any = fx.node.map_aggregate((node.args, node.kwargs), replaced)
    node.args, node.kwargs = arguments


def _after(cut: Cut, modules: Mapping[str, fx.GraphModule]) -> Rewritten:
    """Return the nodes whose integers change, with their new integers."""
    nodes = {
        (path, node.name): node for path, module in modules.items() for node in module.graph.nodes
    }
    pairs: dict[Origin, list[tuple[int, int]]] = {}
    lengths = NewLengths(cut)
    for op in cut.spaces.trace.ops:
        for origin, before_and_after in _integers_by_origin(op, lengths):
            pairs.setdefault(origin, []).extend(before_and_after)
        caller = nodes.get(op.node.meta.get("origin", ("", "")))
        for product, change in changed_factors(op, caller, lengths) if caller else ():
            pairs.setdefault((op.node.meta["origin"][0], product.name), []).append(change)
    return {
        origin: _matched(integers_of(nodes[origin]), changes)
        for origin, changes in pairs.items()
        if origin in nodes and any(before != after for before, after in changes)
    }


def _integers_by_origin(
    op: Op, lengths: NewLengths
) -> Iterator[tuple[Origin, list[tuple[int, int]]]]:
    """Yield the integers of the nodes that a captured operator came from, before and after."""
    if "origin" in op.node.meta:
        yield op.node.meta["origin"], _pairs(op, lengths)
    if "flattened" in op.node.meta:
        yield from _pairs_of_views(op, lengths)


def _pairs(op: Op, lengths: NewLengths) -> list[tuple[int, int]]:
    """Return the integers that an operator was called with, before and after the cut.

    Those that it was not called with, because they are defaults, come last.
    """
    changed = new_arguments(op, lengths)
    schema = getattr(op.node.target, "_schema", None)
    names = [a.name for a in schema.arguments] if schema is not None else list(op.arguments)
    given: dict[str, Any] = dict(zip(names, op.node.args, strict=False)) | op.node.kwargs
    defaults = {n: op.arguments[n] for n in names if n not in given and n in op.arguments}
    pairs = []
    for name, argument in (given | defaults).items():
        before, after = _leaves(argument), _leaves(changed.get(name, argument))
        pairs += [pair for pair in zip(before, after, strict=True) if is_plain_integer(pair[0])]
    return pairs


def _pairs_of_views(op: Op, lengths: NewLengths) -> Iterator[tuple[Origin, list[tuple[int, int]]]]:
    """Yield the sizes of the views around a product that was captured as one linear layer."""
    source, result = op["input"], op.outputs[0]
    last = lengths.after(source, len(source.shape) - 1)
    rows, restored = op.node.meta["flattened"], op.node.meta["restored"]
    if "origin" in rows.meta:
        numbers = integers_of(rows)
        yield rows.meta["origin"], [*((n, n) for n in numbers[:-1]), (numbers[-1], last)]
    if "origin" in restored.meta:
        sizes: Any = restored.args[1]
        yield (
            restored.meta["origin"],
            [
                (n, n if n == -1 else lengths.after(result, dim))
                for dim, n in enumerate(sizes)
                if is_plain_integer(n)
            ],
        )


def _leaves(argument: Any) -> list[Any]:
    return list(argument) if isinstance(argument, list | tuple) else [argument]


def _matched(numbers: list[int], changes: list[tuple[int, int]]) -> list[int]:
    """Return a node's integers after the cut, given those of the operators that it became.

    The same integers in the same order match one by one. Otherwise an integer follows those of its
    value, in order if they occur equally often. What cannot be matched stays; the smaller network
    then fails when it is tried.
    """
    if [before for before, _ in changes[: len(numbers)]] == numbers:
        return [after for _, after in changes[: len(numbers)]]
    by_value: dict[int, list[int]] = {}
    for before, after in changes:
        by_value.setdefault(before, []).append(after)
    counts, seen = Counter(numbers), Counter[int]()
    result = []
    for number in numbers:
        candidates = by_value.get(number, [number])
        distinct = set(candidates)
        if len(distinct) == 1:
            result.append(candidates[0])
        elif len(candidates) == counts[number]:
            result.append(candidates[seen[number]])
        else:
            result.append(number)
        seen[number] += 1
    return result
