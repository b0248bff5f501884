"""One channel space: a set of channels of which some are kept and the others removed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from interpress.errors import ArgumentError
from interpress.spaces.frozen import family_of


@dataclass(frozen=True, eq=False, repr=False)
class ChannelSpace:
    """A set of channels that occur in the same tensors.

    Any multiple of `step` of the `size` channels may be kept, the same share of every cell (a
    head, or a group of a convolution). A frozen space cannot shrink; `frozen` is the reason.
    """

    name: str
    size: int
    cells: Tensor
    """Per channel, its cell. All cells keep the same share of their channels."""
    step: int
    heads: bool = False
    """Whether the members are whole attention heads instead of single channels."""
    in_groups: bool = False
    """Whether the cells are groups of heads that share a key and a value, which another space
    removes as a whole."""
    producers: tuple[str, ...] = ()
    carriers: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    taps: tuple[str, ...] = ()
    frozen: str | None = None

    def __repr__(self) -> str:
        state = "can shrink" if self.frozen is None else f"frozen: {self.frozen}"
        unit = "heads" if self.heads else "channels"
        return f"ChannelSpace({self.name!r}, {self.size} {unit} in steps of {self.step}, {state})"

    @property
    def remedy(self) -> str | None:
        """What a user can do so that a frozen space shrinks; None if it can shrink."""
        return None if self.frozen is None else family_of(self.frozen).remedy

    def widths(self) -> range:
        """Return the numbers of channels that may be kept, smallest first."""
        return (
            range(self.size, self.size + 1)
            if self.frozen
            else range(self.step, self.size + 1, self.step)
        )

    def check(self, kept: Tensor | Sequence[int]) -> Tensor:
        """Return `kept` (indices or a mask) as sorted indices, or raise an error."""
        index = self._as_indices(kept)
        ordered = self._check_range(index)
        self._check_cells(ordered)
        return ordered

    @property
    def _title(self) -> str:
        return f"space {self.name!r}"

    def _as_indices(self, kept: Tensor | Sequence[int]) -> Tensor:
        values = torch.as_tensor(kept).reshape(-1).cpu()
        if values.dtype == torch.bool and values.numel() == self.size:
            values = torch.nonzero(values).reshape(-1)
        if values.numel() and (values.is_floating_point() or values.dtype == torch.bool):
            raise ArgumentError(
                f"{self._title}: kept has {values.numel()} values of {values.dtype}; pass the "
                f"indices of the channels to keep, or a boolean mask of length {self.size}"
            )
        return values.long()

    def _check_range(self, index: Tensor) -> Tensor:
        """Return the indices sorted. Each must exist and be given once."""
        if index.numel() == 0:
            raise ArgumentError(f"{self._title}: kept is empty; keep at least {self.step} channels")
        if int(index.min()) < 0 or int(index.max()) >= self.size:
            bad = int(index.min()) if int(index.min()) < 0 else int(index.max())
            raise ArgumentError(
                f"{self._title}: channel {bad} does not exist; pass channels from 0 to "
                f"{self.size - 1}"
            )
        ordered = index.unique()
        if ordered.numel() != index.numel():
            raise ArgumentError(f"{self._title}: kept repeats a channel; give every channel once")
        if self.frozen and ordered.numel() < self.size:
            raise ArgumentError(f"{self._title} is frozen: {self.frozen}; leave it out of kept")
        return ordered

    def _check_cells(self, kept: Tensor) -> None:
        sizes = torch.bincount(self.cells)
        kept_sizes = torch.bincount(self.cells[kept], minlength=len(sizes))
        if bool((kept_sizes * self.size != sizes * kept.numel()).any()):
            raise ArgumentError(
                f"{self._title}: its {len(sizes)} cells must keep the same share, but they keep "
                f"{kept_sizes.tolist()} of {sizes.tolist()} channels; keep a multiple of "
                f"{self.step} channels, the same share of every cell"
            )


def union(first: ChannelSpace, second: ChannelSpace) -> ChannelSpace:
    """Return one space with the channels of both, which then keep the same share."""
    cells = torch.cat([first.cells, second.cells + int(first.cells.max()) + 1])
    size = first.size + second.size
    roles: dict[str, Any] = {
        role: tuple(dict.fromkeys(getattr(first, role) + getattr(second, role)))
        for role in ("producers", "carriers", "consumers", "taps")
    }
    step = size // math.gcd(*torch.bincount(cells).tolist())
    return replace(first, size=size, cells=cells, step=step, **roles)
