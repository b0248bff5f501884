"""Where taps are read in a captured graph: finding and replacing the operand of a node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, fx

from interpress.spaces.taps import Site, Tap


def by_node(taps: Iterable[Tap]) -> dict[fx.Node, list[tuple[Tap, Site]]]:
    """The sites of some taps, by the node that reads them."""
    sites: dict[fx.Node, list[tuple[Tap, Site]]] = {}
    for tap in taps:
        for site in tap.sites:
            sites.setdefault(site.op.node, []).append((tap, site))
    return sites


def _place(node: fx.Node, site: Site) -> int | tuple[int, int]:
    """Where an operand stands among a node's positional arguments."""
    if site.op.family == "aten.einsum":
        return 1, int(site.argument)
    return [argument.name for argument in node.target._schema.arguments].index(site.argument)  # type: ignore[union-attr]


def operand_of(node: fx.Node, args: Any, kwargs: Any, site: Site) -> Tensor:
    """The value that a site reads, among the arguments of its node."""
    if site.argument in kwargs:
        return kwargs[site.argument]
    place = _place(node, site)
    return args[place[0]][place[1]] if isinstance(place, tuple) else args[place]


def with_operand(node: fx.Node, args: Any, kwargs: Any, site: Site, value: Tensor) -> Any:
    """The arguments with that value replaced."""
    if site.argument in kwargs:
        return args, {**kwargs, site.argument: value}
    place = _place(node, site)
    changed = list(args)
    if isinstance(place, tuple):
        changed[place[0]] = [value if i == place[1] else t for i, t in enumerate(args[place[0]])]
    else:
        changed[place] = value
    return tuple(changed), kwargs
