"""Taps that read an average over positions, such as global pooling before a classifier.

An average leaves one row per example. Averaging commutes with mixing channels, so the channels can
also be measured before it, where rows are many.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, fx

from interpress.graph.patterns import NO_EFFECT_IN_EVALUATION
from interpress.graph.rows import BatchRows
from interpress.labels.trace import Op, Value
from interpress.spaces.taps import Tap

_AVERAGES = (
    "aten.mean",
    "aten.avg_pool1d",
    "aten.avg_pool2d",
    "aten.avg_pool3d",
    "aten.adaptive_avg_pool1d",
    "aten.adaptive_avg_pool2d",
    "aten.adaptive_avg_pool3d",
)


@dataclass(frozen=True, eq=False)
class Source:
    """A value whose average over positions a tap reads."""

    tap: str
    dim: int
    """The dim of the value that holds the channels."""
    order: Tensor
    """Per column of the tap, its index along that dim."""

    def rows(self, value: Tensor, batch: BatchRows, most: int) -> tuple[Tensor, Tensor]:
        """Return rows of the value, in the order of the tap's columns, and which half each is in.

        At most `most` rows of every example are taken.
        """
        rows = value.movedim(self.dim, -1)
        rows = rows.reshape(-1, rows.shape[-1])
        at = batch.sample(len(rows), most)
        in_second = batch.halves(len(rows), at)
        rows = rows if at is None else rows.index_select(0, at.to(rows.device))
        return rows.index_select(1, self.order.to(rows.device)), in_second


def averaged_sources(taps: Iterable[Tap]) -> dict[fx.Node, list[Source]]:
    """Return the sources of all taps that read an average, by the node that computes them."""
    sources: dict[fx.Node, list[Source]] = {}
    for tap in taps:
        value = _before_average(tap)
        if value is None or value.op is None:
            continue
        for labelling in value.channels():
            if len(labelling.support) == 1 and _same_labels(labelling.labels, tap.labels):
                index = {label: i for i, label in enumerate(labelling.labels.reshape(-1).tolist())}
                order = torch.tensor([index[label] for label in tap.labels.tolist()])
                source = Source(tap.name, labelling.support[0], order)
                sources.setdefault(value.op.node, []).append(source)
                break
    return sources


def _same_labels(first: Tensor, second: Tensor) -> bool:
    return torch.equal(first.reshape(-1).sort().values, second.reshape(-1).sort().values)


def _before_average(tap: Tap) -> Value | None:
    """Return the value that the tap's operand averages, through operators that only move data."""
    site = tap.sites[0]
    value = site.op.arguments.get(site.argument)
    source = None
    while isinstance(value, Value) and value.op is not None and _commutes(value.op):
        operands = [a for a in value.op.arguments.values() if isinstance(a, Value)]
        if len(operands) != 1 or len(value.op.outputs) != 1:
            break
        if _averages(value.op):
            source = operands[0]
        value = operands[0]
    return source


def _commutes(op: Op) -> bool:
    """Return whether an operator commutes with mixing channels in evaluation mode."""
    return op.linear or _averages(op) or op.family in NO_EFFECT_IN_EVALUATION


def _averages(op: Op) -> bool:
    return op.family in _AVERAGES
