"""Where channels are read, and which weights can absorb `T` there.

A read is a sum over channels of a product of two operands. One of them, the *tap*, is replaced by
`Z[:, kept] @ T`; the other must be a weight, or come from one through operators that commute with
mixing channels, so that `T` can be multiplied into it once and for all. The query and key of an
attention are such a pair: `K` is the tap, and the weight that makes `Q` absorbs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from interpress.labels.trace import Op


@dataclass(frozen=True, eq=False)
class Site:
    """One operand of one operator, whose elements along `dims` are columns of a tap."""

    op: Op
    argument: str
    dims: tuple[int, ...]
    places: Tensor
    """(repeats, columns): flat position over `dims`; a flattened channel repeats over space."""
    fold: tuple[int, int] | None = None
    """A dim that merges the batch with something of this length, which alone counts."""

    @cached_property
    def in_order(self) -> bool:
        """Whether columns are the elements along `dims` as they come."""
        return torch.equal(self.places, torch.arange(self.places.shape[1])[None])


@dataclass(frozen=True, eq=False)
class Absorber:
    """A weight that reads a tap along `dim`: its entries belong to columns and repeats."""

    weight: str
    dim: int
    column: Tensor
    """Per index of `dim`, the column read, or -1. (groups, members) for a grouped convolution."""
    repeat: Tensor


@dataclass(frozen=True, eq=False)
class Tap:
    """Values right before their consumers: one `T` for all of them."""

    name: str
    sites: tuple[Site, ...]
    labels: Tensor
    """Per column, the label of its channel."""
    groups: Tensor
    """Per column, its group: columns of different groups are never mixed."""
    absorbers: tuple[Absorber, ...]
    gain: bool = False
    """Whether the consumer divides by the square root of the number of columns in a group."""
    of_activations: bool = False
    """Whether both operands are activations, as the query and key of an attention are."""

    @property
    def size(self) -> int:
        """The number of columns."""
        return len(self.labels)

    def columns(self, operand: Tensor, site: Site, at: Tensor | None = None) -> Tensor:
        """`Z`: the operand as rows by columns, (rows * repeats, columns); `at` some rows only."""
        operand, dims = _unfolded(operand, site)
        if at is None:
            rows = _as_matrix(operand, dims)
        else:
            rows = _some_rows(operand, dims, at.to(operand.device))
        if site.in_order:
            return rows.clone() if at is None else rows  # never a view of the operand
        return rows[:, site.places.to(operand.device)].reshape(-1, self.size)

    def rows(self, operand: Tensor, site: Site) -> int:
        """How many rows an operand gives, each with all repeats."""
        operand, dims = _unfolded(operand, site)
        return operand.numel() // math.prod(operand.shape[dim] for dim in dims)

    def replaced(self, operand: Tensor, site: Site, kept: Tensor, T: Tensor) -> Tensor:
        """The operand with every column replaced by its interpolation from the kept ones."""
        whole = operand.shape
        operand, dims = _unfolded(operand, site)
        matrix = _as_matrix(operand, dims)
        places = site.places.to(operand.device)
        Z = matrix[:, places]  # (rows, repeats, n)
        matrix = matrix.clone()
        kept, T = kept.to(Z.device), T.to(Z)
        matrix[:, places] = Z[..., kept] @ T  # (rows, repeats, k) @ (k, n)
        rest = [dim for dim in range(operand.ndim) if dim not in dims]
        shape = [operand.shape[dim] for dim in rest] + [operand.shape[dim] for dim in dims]
        order = [0] * operand.ndim
        for place, dim in enumerate([*rest, *dims]):
            order[dim] = place
        return matrix.reshape(shape).permute(order).reshape(whole)


def _unfolded(operand: Tensor, site: Site) -> tuple[Tensor, tuple[int, ...]]:
    """The operand with a dim that merges the batch split in two, and the dims as they are then."""
    if site.fold is None:
        return operand, site.dims
    where, length = site.fold
    dims = tuple(dim + 1 if dim >= where else dim for dim in site.dims)
    return operand.unflatten(where, (-1, length)), dims


def _as_matrix(operand: Tensor, dims: tuple[int, ...]) -> Tensor:
    """(rows, positions): everything but `dims` becomes rows."""
    rest = [dim for dim in range(operand.ndim) if dim not in dims]
    positions = 1
    for dim in dims:
        positions *= operand.shape[dim]
    return operand.permute([*rest, *dims]).reshape(-1, positions)


def _some_rows(operand: Tensor, dims: tuple[int, ...], at: Tensor) -> Tensor:
    """As `_as_matrix`, for some rows, without making the others."""
    rest = [dim for dim in range(operand.ndim) if dim not in dims]
    rows = operand.permute([*rest, *dims])
    if rows.is_contiguous():
        return rows.reshape(-1, math.prod(rows.shape[len(rest) :])).index_select(0, at)
    index = torch.unravel_index(at, rows.shape[: len(rest)])
    return rows[index].reshape(len(at), -1)
