"""The taps that calibration measures, and the dense layers that read them."""

from __future__ import annotations

from collections.abc import Iterable

from interpress.graph.dense import DenseLayer, dense_layer_of
from interpress.spaces.spaces import Spaces
from interpress.spaces.taps import Tap


def shrinkable_taps(spaces: Spaces) -> list[Tap]:
    """Return the taps at which some channel can be dropped."""
    names = dict.fromkeys(name for space in spaces.shrinkable for name in space.taps)
    return [spaces.taps[name] for name in names]


def dense_consumers(spaces: Spaces, taps: Iterable[Tap]) -> dict[str, DenseLayer]:
    """Return the taps that exactly one plain dense layer reads, and that layer."""
    consumers = {}
    parameters = spaces.program.parameters()
    for tap in taps:
        dense = dense_layer_of(spaces.program, tap.sites[0].op.node, parameters)
        plain = len(tap.sites) == len(tap.absorbers) == 1 and tap.sites[0].argument == "input"
        if dense is not None and plain and dense.weight == tap.absorbers[0].weight:
            consumers[tap.name] = dense
    return consumers
