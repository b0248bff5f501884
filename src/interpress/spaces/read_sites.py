"""Find and replace the operands of a program that are taps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, fx

from interpress.spaces.taps import Site, Tap


def by_node(taps: Iterable[Tap]) -> dict[fx.Node, list[tuple[Tap, Site]]]:
    """Return the sites of some taps, grouped by the node that reads them."""
    sites: dict[fx.Node, list[tuple[Tap, Site]]] = {}
    for tap in taps:
        for site in tap.sites:
            sites.setdefault(site.op.node, []).append((tap, site))
    return sites


def _position(node: fx.Node, site: Site) -> int | tuple[int, int]:
    """Return the position of an operand among the arguments; for einsum, inside its list."""
    if site.op.family == "aten.einsum":
        return 1, int(site.argument)
    return [argument.name for argument in node.target._schema.arguments].index(site.argument)  # type: ignore[union-attr]


def operand_of(node: fx.Node, args: Any, kwargs: Any, site: Site) -> Tensor:
    """Return the operand that a site reads, from the arguments of its node."""
    if site.argument in kwargs:
        return kwargs[site.argument]
    position = _position(node, site)
    return args[position[0]][position[1]] if isinstance(position, tuple) else args[position]


def with_operand(node: fx.Node, args: Any, kwargs: Any, site: Site, value: Tensor) -> Any:
    """Return the arguments `(args, kwargs)` with the operand of a site replaced."""
    if site.argument in kwargs:
        return args, {**kwargs, site.argument: value}
    position = _position(node, site)
    changed = list(args)
    if isinstance(position, tuple):
        outer, inner = position
        changed[outer] = [value if i == inner else t for i, t in enumerate(args[outer])]
    else:
        changed[position] = value
    return tuple(changed), kwargs
