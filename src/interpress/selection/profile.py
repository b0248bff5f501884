"""What calibration says about one space: everything that a selection may look at."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial

import torch
from torch import Tensor

from interpress.calibration.statistics import Statistics
from interpress.graph.program import Program
from interpress.linalg.factor import RFactor
from interpress.selection.activations import TapSample, no_activations
from interpress.selection.consumers import patch_consumer, weight_gram
from interpress.selection.producer_weights import ProducerWeights
from interpress.selection.tap_view import TapView
from interpress.selection.units import columns_by_unit, units_of
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.spaces import Spaces

_GRAMS = 8  # weights' Gram matrices that are held, for taps that several spaces share
_WIDE = 2048  # columns of a tap from which only one of them is held


@dataclass(frozen=True, eq=False)
class Profile:
    """A shrinkable space, the taps that read it, and the weights that produce it."""

    space: ChannelSpace
    views: tuple[TapView, ...]
    """One per tap of the space."""
    producers: ProducerWeights
    activations: Callable[[str], TapSample] = field(repr=False)
    """What stands at a tap on a few calibration examples; needs the data themselves."""
    seed: int = 0

    def generator(self) -> torch.Generator:
        """Return a random generator that depends on the seed and the space's name only."""
        return torch.Generator().manual_seed(zlib.crc32(self.space.name.encode()) + self.seed)

    @property
    def in_blocks(self) -> bool:
        """Whether some unit is not one column of every tap, as a head is not."""
        return any(bool((view.per_unit != 1).any()) for view in self.views)

    @cached_property
    def factor(self) -> RFactor:
        """The factor of all taps stacked, each scaled to the same size."""
        if len(self.views) == 1:
            return self.views[0].factor
        scaled = [view.factor.G / _trace(view.factor.G) for view in self.views]
        rows = sum(view.factor.rows for view in self.views)
        return RFactor.from_gram(torch.stack(scaled).sum(0), rows)

    @cached_property
    def H(self) -> Tensor:
        """`U @ U.T` of all consumers, each scaled to the same effect."""
        if len(self.views) == 1:
            return self.views[0].H
        scaled = [v.H * (_trace(v.factor.G) / v.energy) for v in self.views if v.energy > 0]
        return torch.stack(scaled).sum(0) if scaled else torch.zeros_like(self.views[0].H)

    @property
    def distrust(self) -> str | None:
        """Why too few rows describe this space; None if there are enough."""
        reasons = (view.halves.distrust for view in self.views)
        return next((reason for reason in reasons if reason is not None), None)

    def release(self) -> None:
        """Forget what was looked up about this space."""
        for name in ("factor", "H"):
            vars(self).pop(name, None)
        for view in self.views:
            view.release()

    def squared_errors(self, units: Tensor) -> Tensor:
        """Return (size + 1,) relative squared errors of all consumers with k units kept."""
        total = torch.zeros(self.space.size + 1, dtype=torch.float64)
        for view in self.views:
            if view.energy > 0:
                tails = view.ordering(units).weighted_tails(view.H).cpu()
                total += tails[view.widths(units)].square() / view.energy
        return total

    def squared_error(self, units: Tensor, width: int) -> float:
        """Return the same at one width, which is much cheaper."""
        return sum(v.squared_error(units, width) / v.energy for v in self.views if v.energy > 0)


def profiles_of(
    spaces: Spaces,
    statistics: Statistics,
    activations: Callable[[str], TapSample] | None = None,
    seed: int = 0,
) -> dict[str, Profile]:
    """Return the profile of every shrinkable space that some tap measures."""
    parameters = _OnDevice(spaces.program)
    widest = max((spaces.taps[tap].size for s in spaces.shrinkable for tap in s.taps), default=0)
    count = 1 if widest > _WIDE else _GRAMS
    sensitivities = statistics.sensitivities

    @lru_cache(count)
    def grams(name: str) -> Tensor:
        return weight_gram(spaces, spaces.taps[name], parameters, sensitivities.get(name))

    profiles = {}
    for space in spaces.shrinkable:
        views = [
            _view(spaces, space, name, statistics, partial(grams, name), parameters)
            for name in space.taps
        ]
        measured = tuple(view for view in views if view is not None)
        if measured and is_measurable(spaces, space):
            producers = ProducerWeights(space, spaces, parameters)
            profiles[space.name] = Profile(
                space, measured, producers, activations or _no_data, seed
            )
    return profiles


class _OnDevice(Mapping[str, Tensor]):
    """Weights on the device that computes; they are copied there when they are looked up."""

    def __init__(self, program: Program) -> None:
        self._device, self._parameters = program.device, program.parameters()

    def __getitem__(self, name: str) -> Tensor:
        return self._parameters[name].to(self._device)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)


def is_measurable(spaces: Spaces, space: ChannelSpace) -> bool:
    """Return whether some tap has columns of every unit of a space."""
    labels = (spaces.taps[name].labels for name in space.taps)
    units = (units_of(spaces, space, tap_labels) for tap_labels in labels)
    return any(len(tap_units[tap_units >= 0].unique()) == space.size for tap_units in units)


def _no_data(tap: str) -> TapSample:
    raise no_activations(tap)


def _view(
    spaces: Spaces,
    space: ChannelSpace,
    name: str,
    statistics: Statistics,
    gram: Callable[[], Tensor],
    parameters: Mapping[str, Tensor],
) -> TapView | None:
    """Return one tap as a space sees it; None if it has none of its columns."""
    tap = spaces.taps[name]
    units = units_of(spaces, space, tap.labels)
    index = columns_by_unit(units, space.size)
    if index is None:
        return None
    columns = index[index >= 0]
    is_sensitive = name in statistics.sensitivities  # then errors are divergences
    return TapView(
        name,
        (index >= 0).sum(1),
        lambda: statistics.halves[name].select(columns),
        lambda: 1.0 if is_sensitive else statistics.output_variances.get(name) or None,
        lambda: _selected(gram(), columns),
        partial(patch_consumer, spaces, tap, (units, space.size), statistics, parameters),
    )


def _selected(matrix: Tensor, columns: Tensor) -> Tensor:
    """Return rows and columns of a matrix; the matrix itself if these are all of them in order."""
    if torch.equal(columns, torch.arange(len(matrix))):
        return matrix
    return matrix[columns][:, columns]


def _trace(G: Tensor) -> float:
    return max(float(G.diagonal().sum()), 1e-300)
