"""The tables of orderings and of methods.

An ordering says in which order the channels of a space are kept; everything after it (T, widths,
surgery, refit) is shared. To add one, write a file in this folder with one function:

    @selection("random")
    def random(profile: Profile) -> Chosen: ...

A method is an ordering, an allocation (`interpress.allocate`), whether the readers of dropped
channels are corrected by `T`, and whether to refit.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

import torch
from torch import Tensor

import interpress.methods
from interpress.errors import ArgumentError
from interpress.selection.profile import Profile


class Ranking(NamedTuple):
    """Units of a space, most important first, and what is lost with the k-th relative to all."""

    units: Tensor
    proxy: Tensor
    """(size + 1,) `|r_{k+1,k+1} / r_11|` for k = 0 ... size."""
    errors: Tensor | None = None
    """(size + 1,) relative squared error with k units kept, if not that of `T`."""


Selection = Callable[[Profile], Ranking]
_SELECTIONS: dict[str, Selection] = {}


def selection(name: str) -> Callable[[Selection], Selection]:
    """Register an ordering of channels under a name."""

    def register(function: Selection) -> Selection:
        if name in _SELECTIONS:
            raise ValueError(f"the selection {name!r} is registered already")
        _SELECTIONS[name] = function
        return function

    return register


@cache
def _load() -> None:
    for module in pkgutil.iter_modules(interpress.methods.__path__):
        importlib.import_module(f"interpress.methods.{module.name}")


def selections() -> dict[str, Selection]:
    """All orderings by name."""
    _load()
    return _SELECTIONS


@dataclass(frozen=True, eq=False)
class ChannelOrder:
    """The nested order of a space's units, equally many of every cell, and what widths cost."""

    units: Tensor
    proxy: Tensor
    _errors: Callable[[], Tensor]

    @cached_property
    def errors(self) -> Tensor:
        """(size + 1,) relative squared error of what is read, with the first k units kept."""
        return self._errors()

    def kept(self, k: int) -> Tensor:
        """The first k units, ascending."""
        return self.units[:k].sort().values


def ranked(scores: Tensor) -> Ranking:
    """Units by one number each, largest first; `proxy` is the share of the next one."""
    values = scores.detach().double().cpu()
    units = torch.argsort(values, descending=True, stable=True)
    sizes = values[units].abs()
    proxy = torch.cat([sizes / sizes.max().clamp(min=1e-300), torch.zeros(1)])
    return Ranking(units, proxy)


def order_channels(profile: Profile, name: str) -> ChannelOrder:
    """The order of one space by the selection of this name."""
    chosen = selections()[name](profile)
    units = _balanced(chosen.units.cpu(), profile.space.cells)
    known = chosen.errors
    return ChannelOrder(
        units,
        chosen.proxy.cpu(),
        (lambda: profile.squared_errors(units)) if known is None else known.cpu,
    )


def _balanced(units: Tensor, cells: Tensor) -> Tensor:
    """The same order, taking equally often from every cell."""
    full = torch.bincount(cells)
    if len(full) == 1:
        return units
    taken = torch.zeros(len(full))
    rank = torch.empty(len(units))
    for place, unit in enumerate(units.tolist()):
        cell = int(cells[unit])
        rank[place] = taken[cell] / full[cell]
        taken[cell] += 1
    return units[torch.argsort(rank, stable=True)]


@dataclass(frozen=True)
class Method:
    """A named way to compress; every part can be replaced by name."""

    name: str
    selection: str
    allocation: str
    refit: bool
    correct: bool = True
    """Whether readers absorb `T`; without it they just lose the dropped channels."""
    balance: bool = True
    """Whether what is seldom decided counts for more in the refit."""

    def with_parts(
        self,
        selection: str | None = None,
        allocation: str | None = None,
        refit: bool | None = None,
        correct: bool | None = None,
        balance: bool | None = None,
    ) -> Method:
        """The same method with some parts replaced."""
        known = {"selection": list(selections()), "allocation": list(ALLOCATIONS)}
        for part, value in (("selection", selection), ("allocation", allocation)):
            if value is not None and value not in known[part]:
                raise ArgumentError(
                    f"{part}={value!r} is not known; choose one of {', '.join(known[part])}"
                )
        return replace(
            self,
            selection=selection or self.selection,
            allocation=allocation or self.allocation,
            refit=self.refit if refit is None else refit,
            correct=self.correct if correct is None else correct,
            balance=self.balance if balance is None else balance,
        )


ALLOCATIONS = ("constant", "iterative", "marginal", "measured")
METHODS = {
    method.name: method
    for method in (
        Method("preserve", "patches", "measured", refit=True),
        Method("iterative-id", "pivoting", "iterative", refit=False),
        Method("constant-id", "pivoting", "constant", refit=False),
    )
}


def method_of(name: str) -> Method:
    """The method of this name."""
    if name not in METHODS:
        raise ArgumentError(f"method={name!r} is not known; choose one of {', '.join(METHODS)}")
    return METHODS[name]
