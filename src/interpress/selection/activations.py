"""Activations of a few examples, for selections that look at more than Gram matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any

from torch import Tensor, fx

from interpress.calibration.consumers import dense_consumers, shrinkable_taps
from interpress.calibration.study import Study
from interpress.data.batches import batch_size
from interpress.errors import ArgumentError
from interpress.graph.dense import DenseLayer
from interpress.graph.executor import Executor
from interpress.selection.units import units_of
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.read_sites import operand_of
from interpress.spaces.taps import Tap

_EXAMPLES = 128


@dataclass(frozen=True, eq=False)
class TapSample:
    """What the first consumer of one tap reads on a few examples."""

    operand: Tensor
    tap: Tap
    units: Callable[[ChannelSpace], Tensor] = field(repr=False)
    """Per column of the tap, the unit of a space that it belongs to, or -1."""
    dense: DenseLayer | None
    """The consumer, if it is one plain dense layer."""
    weight: Tensor | None
    """Its weight, with the outputs along the first dim."""

    def columns(self) -> Tensor:
        """Return `Z`: rows by columns."""
        return self.tap.columns(self.operand, self.tap.sites[0])

    def maps(self) -> Tensor:
        """Return (examples, columns, height, width): every channel of an example as an image."""
        site, shape = self.tap.sites[0], self.operand.shape
        if site.fold is not None:  # the batch is merged into another dim: one number per example
            return self.columns()[:, :, None, None]
        other_sizes = [shape[dim] for dim in range(len(shape)) if dim not in site.dims]
        by_example = self.columns().reshape(other_sizes[0], -1, self.tap.size).mT
        return by_example.unflatten(2, other_sizes[1:] if len(other_sizes) == 3 else (-1, 1))


class Activations:
    """Runs the network on a few examples when a selection first asks; forgets them on exit."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._operands: dict[str, Tensor] = {}

    def __enter__(self) -> Activations:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._operands.clear()

    def at(self, name: str) -> TapSample:
        """Return what stands at a tap."""
        spaces = self._study.spaces
        if self._study.data is None:
            raise no_activations(name)
        if not self._operands:
            self._measure()
        tap = spaces.taps[name]
        dense = dense_consumers(spaces, [tap]).get(name)
        weight = None
        if dense is not None:
            weight = spaces.program.parameters()[dense.weight]
            weight = weight.T if dense.is_transposed else weight
        units = partial(units_of, spaces, labels=tap.labels)
        return TapSample(self._operands[name], tap, units, dense, weight)

    def _measure(self) -> None:
        taps: dict[fx.Node, list[Tap]] = {}
        for tap in shrinkable_taps(self._study.spaces):
            taps.setdefault(tap.sites[0].op.node, []).append(tap)

        def before(node: fx.Node, args: Any, kwargs: Any) -> Any:
            for tap in taps.get(node, ()):
                operand = operand_of(node, args, kwargs, tap.sites[0])
                self._operands[tap.name] = operand.clone()
            return args, kwargs

        example = max(self._study.few_examples(_EXAMPLES), key=batch_size)
        Executor(self._study.spaces.program).run(example, before=before)


def no_activations(tap: str) -> ArgumentError:
    """Return the error for a selection that needs data where there are none."""
    return ArgumentError(
        f"this selection needs activations at {tap!r}, but there are no calibration data; choose "
        "another selection, such as 'weights', or pass data= to Analysis.load"
    )
