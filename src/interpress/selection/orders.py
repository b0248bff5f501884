"""The order in which every space keeps its channels, for one selection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from torch import Tensor

from interpress.calibration.study import Study
from interpress.progress import Display
from interpress.selection.activations import Activations
from interpress.selection.held_out import corrected, half_errors_of_patches, half_errors_of_T
from interpress.selection.profile import Profile, profiles_of
from interpress.selection.registry import SELECTIONS


@dataclass(frozen=True, eq=False)
class ChannelOrder:
    """The units of one space in nested order, equally many of every cell, and their errors."""

    units: Tensor
    proxy: Tensor
    """(size + 1,) cheap error estimate with the first k units kept."""
    _errors: Callable[[], Tensor]
    squared_error: Callable[[int], float]
    """From a width to the relative squared error of consumers that absorb `T`."""

    @cached_property
    def errors(self) -> Tensor:
        """(size + 1,) relative squared error of the consumers with the first k units kept."""
        return self._errors()

    def kept(self, k: int) -> Tensor:
        """Return the first k units, ascending."""
        return self.units[:k].sort().values


@dataclass(frozen=True, eq=False)
class Orders(Mapping[str, ChannelOrder]):
    """The order of every shrinkable space, by its name."""

    selection: str
    by_space: Mapping[str, ChannelOrder]
    profiles: Mapping[str, Profile]
    known_distrust: Mapping[str, str | None] = field(default_factory=dict)
    """Per space, what `Profile.distrust` was, if the statistics are no longer at hand."""

    are_divergences: bool = False
    """Whether errors are divergences of the model's predictions, as for language models."""

    @cached_property
    def untrusted(self) -> dict[str, str]:
        """The spaces that too few rows describe, and why. They stay whole if the budget allows."""
        distrust = self.known_distrust or {n: p.distrust for n, p in self.profiles.items()}
        return {name: reason for name, reason in distrust.items() if reason is not None}

    def __getitem__(self, name: str) -> ChannelOrder:
        return self.by_space[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_space)

    def __len__(self) -> int:
        return len(self.by_space)


def order_all(study: Study, selection: str, bars: Display) -> Orders:
    """Order the channels of every shrinkable space."""
    with Activations(study) as activations:
        profiles = profiles_of(study.spaces, study.statistics, activations.at, study.seed)
        by_space: dict[str, ChannelOrder] = {}
        with bars.task("ordering channels", len(profiles)) as advance:
            for name, profile in profiles.items():
                by_space[name] = order_channels(profile, selection)
                advance(1)
    are_divergences = bool(study.statistics.sensitivities)
    return Orders(selection, by_space, profiles, are_divergences=are_divergences)


def order_channels(profile: Profile, selection: str) -> ChannelOrder:
    """Order the channels of one space by the selection of this name."""
    ranking = SELECTIONS[selection](profile)
    units = _balanced(ranking.units.cpu(), profile.space.cells)
    solved_again = None if ranking.errors is None else ranking.errors.cpu()

    def errors() -> Tensor:
        if solved_again is None:
            return corrected(profile.squared_errors(units), half_errors_of_T(profile, units))
        return corrected(solved_again, half_errors_of_patches(profile, units))

    return ChannelOrder(units, ranking.proxy.cpu(), errors, partial(profile.squared_error, units))


def _balanced(units: Tensor, cells: Tensor) -> Tensor:
    """Return the same order, rearranged to take the same fraction of every cell."""
    sizes = torch.bincount(cells)
    if len(sizes) == 1:
        return units
    taken = torch.zeros(len(sizes))
    rank = torch.empty(len(units))
    for index, unit in enumerate(units.tolist()):
        cell = int(cells[unit])
        rank[index] = taken[cell] / sizes[cell]
        taken[cell] += 1
    return units[torch.argsort(rank, stable=True)]
