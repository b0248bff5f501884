"""One channel space: channels of a network that can only be kept or dropped together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from interpress.errors import ArgumentError


@dataclass(frozen=True, eq=False)
class ChannelSpace:
    """A set of channels that live in the same tensors everywhere.

    `size` channels; any multiple of `step` may stay, the same share of every cell (a head, a
    group of a convolution). A frozen space may not shrink; `frozen` says why.
    """

    name: str
    size: int
    cells: Tensor
    """Per channel, its cell. Cells shrink by the same share."""
    step: int
    heads: bool = False
    """Whether its members are whole attention heads rather than single channels."""
    producers: tuple[str, ...] = ()
    carriers: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    taps: tuple[str, ...] = ()
    frozen: str | None = None

    def widths(self) -> range:
        """The widths this space can have, smallest first."""
        return (
            range(self.size, self.size + 1)
            if self.frozen
            else range(self.step, self.size + 1, self.step)
        )

    def check(self, kept: Tensor | Sequence[int]) -> Tensor:
        """`kept` as sorted indices, or an error that says what is wrong with it."""
        where = f"space {self.name!r}"
        given = torch.as_tensor(kept).reshape(-1).cpu()
        if given.dtype == torch.bool and given.numel() == self.size:
            given = torch.nonzero(given).reshape(-1)
        if given.numel() and (given.is_floating_point() or given.dtype == torch.bool):
            raise ArgumentError(
                f"{where}: kept is {given.dtype} of {given.numel()}; pass whole numbers, or a mask "
                f"of {self.size}"
            )
        index = given.long()
        if index.numel() == 0:
            raise ArgumentError(f"{where}: nothing is kept; keep at least {self.step} channels")
        if int(index.min()) < 0 or int(index.max()) >= self.size:
            bad = int(index.min()) if int(index.min()) < 0 else int(index.max())
            raise ArgumentError(
                f"{where}: channel {bad} does not exist; it has {self.size}, numbered from 0"
            )
        ordered = index.unique()
        if ordered.numel() != index.numel():
            raise ArgumentError(f"{where}: a channel is kept twice; name every channel once")
        if self.frozen and ordered.numel() < self.size:
            raise ArgumentError(f"{where} is frozen: {self.frozen}; leave it out of the plan")
        full = torch.bincount(self.cells)
        have = torch.bincount(self.cells[ordered], minlength=len(full))
        if bool((have * self.size != full * ordered.numel()).any()):
            raise ArgumentError(
                f"{where}: its {len(full)} cells must keep the same share, got "
                f"{have.tolist()} of {full.tolist()}; keep a multiple of {self.step} channels, "
                "equally many in every cell"
            )
        return ordered


def union(first: ChannelSpace, second: ChannelSpace) -> ChannelSpace:
    """Return one space with the channels of both, which can only shrink alike."""
    cells = torch.cat([first.cells, second.cells + int(first.cells.max()) + 1])
    size = first.size + second.size
    roles: dict[str, Any] = {
        role: tuple(dict.fromkeys(getattr(first, role) + getattr(second, role)))
        for role in ("producers", "carriers", "consumers", "taps")
    }
    step = size // math.gcd(*torch.bincount(cells).tolist())
    return replace(first, size=size, cells=cells, step=step, **roles)
