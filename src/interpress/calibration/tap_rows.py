"""Rows of one tap while they are collected."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from interpress.calibration.halves import Halves
from interpress.calibration.statistics import PatchMoments
from interpress.errors import DataError
from interpress.linalg.factor import RFactor, triangle
from interpress.linalg.stream import FactorStream
from interpress.spaces.taps import Site, Tap


class TapRowsState(NamedTuple):
    """All sums of one tap."""

    streams: list[tuple[dict[str, Tensor], dict[str, str]]]
    """The states of two streams, one per half of the examples."""
    totals: Tensor
    local: PatchMoments | None


class TapRows:
    """Adds rows of one tap, in two halves of the examples; memory does not grow with them."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        self._streams = [FactorStream(tap.size), FactorStream(tap.size)]
        self._totals = torch.zeros(2, tap.size, dtype=torch.float64)
        self._local: PatchMoments | None = None

    def add(
        self,
        operand: Tensor,
        site: Site,
        at: Tensor | None,
        in_second: Tensor,
        scale: Tensor | None = None,
    ) -> None:
        """Add the rows `at`, or all of them; `in_second` says which are of the second half.

        `scale` (rows, 1) multiplies the rows.
        """
        Z = self._tap.columns(operand, site, at)
        if scale is not None:
            Z = Z * scale.repeat_interleave(len(Z) // max(len(scale), 1), 0)
        repeats = len(Z) // max(len(in_second), 1)  # a flattened channel gives several rows
        in_second = in_second.repeat_interleave(repeats).to(Z.device)
        for half, members in enumerate((~in_second, in_second)):
            rows = Z[members]
            if len(rows):
                self._streams[half].add(rows)
                self._totals[half] += rows.sum(0, dtype=torch.float64).cpu()

    def add_local(self, rows: Tensor, in_second: Tensor) -> None:
        """Add rows of the same channels from before they were averaged over positions."""
        if self._local is None:
            self._local = PatchMoments.empty(self._tap.size, torch.float64, rows.device)
        self._local.add(rows.double(), in_second)

    def begin_like(self, other: TapRows) -> None:
        """Measure local rows relative to what another tap's are measured relative to."""
        self._local = None if other._local is None else other._local.emptied()

    def state(self) -> TapRowsState:
        """Return all sums."""
        return TapRowsState([stream.state() for stream in self._streams], self._totals, self._local)

    def add_state(self, state: TapRowsState) -> None:
        """Add the sums of another process or lane."""
        for stream, (tensors, fields) in zip(self._streams, state.streams, strict=True):
            stream.merge(FactorStream.from_state(tensors, fields))
        self._totals += state.totals
        if self._local is not None and state.local is not None:
            self._local.merge(state.local)

    def halves(self) -> Halves:
        """Return what was collected, and release it here; no more rows can be added."""
        rows = self._streams[0].rows, self._streams[1].rows
        if not any(rows):
            raise DataError("the mask excludes every position; mark those that count with True")
        second = None
        if rows[1]:
            second = _groups_orthogonal(self._streams[1].factor(), self._tap).G
        whole = FactorStream(self._tap.size)
        while self._streams:  # a wide tap must not be held more often than needed
            whole.merge(self._streams.pop(0))
        factor = _groups_orthogonal(whole.factor(), self._tap)
        second = torch.zeros_like(factor.G) if second is None else second.to(factor.device)
        return Halves(factor, second, self._totals.to(factor.device), rows, self._local_moments())

    def _local_moments(self) -> Tensor | None:
        if self._local is None:
            return None
        moments = torch.stack([self._local.moments(centred=False, half=half) for half in (0, 1)])
        return moments * _same_group(self._tap).to(moments)


def _same_group(tap: Tap) -> Tensor:
    return tap.groups[:, None] == tap.groups[None, :]


def _groups_orthogonal(factor: RFactor, tap: Tap) -> RFactor:
    """Return the factor with columns of different groups made orthogonal.

    The consumer never mixes columns of different groups, so their inner products do not matter.
    """
    if len(tap.groups.unique()) == 1:
        return factor
    if factor.gram is not None:
        same_group = _same_group(tap).to(factor.device)
        return RFactor(factor.rows, factor.floor, gram=factor.gram * same_group)
    blocks = []
    for group in tap.groups.unique():
        columns = torch.nonzero(tap.groups == group).reshape(-1).to(factor.device)
        root = triangle(factor.R[:, columns])
        block = root.new_zeros(len(root), factor.n)
        block[:, columns] = root
        blocks.append(block)
    return RFactor(factor.rows, factor.floor, root=torch.cat(blocks))
