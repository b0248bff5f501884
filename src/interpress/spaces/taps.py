"""Taps: where channels are read, and which weights absorb `T` there.

A read is a sum over channels of a product of two operands. One operand, the *tap*, is replaced by
`Z[:, kept] @ T`. The other one must be a weight, or be computed from a weight by operators that
commute with mixing channels, so that `T` can be multiplied into the weight. The query and key of
an attention are such a pair: `K` is the tap, and the weight that makes `Q` absorbs `T`.
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
    positions: Tensor
    """(repeats, columns): flat index over `dims`. A channel that was flattened together with
    spatial dims occurs several times: these are its repeats. Flattening (C, 2, 2): each channel has
    4 repeats, and `positions` is (4, C) with `positions[r, c] == 4 * c + r`."""
    fold: tuple[int, int] | None = None
    """A dim that merges the batch with another dim, and the length of that other dim. Only the
    other dim holds columns. For (batch * heads, tokens, dims) it is `(0, heads)`."""

    @cached_property
    def in_order(self) -> bool:
        """Whether the columns are the first elements along `dims`, in the same order, once each."""
        return torch.equal(self.positions, torch.arange(self.positions.shape[1])[None])


@dataclass(frozen=True, eq=False)
class Absorber:
    """A weight that reads a tap along `dim`."""

    weight: str
    dim: int
    column: Tensor
    """Per index of `dim`, the column it reads, or -1. (groups, members) for a grouped
    convolution."""
    repeat: Tensor
    """Per index of `dim`, which repeat of the column it reads. After flattening (C, 2, 2), index
    `4 * c + r` reads repeat `r` of column `c`."""


@dataclass(frozen=True, eq=False)
class Tap:
    """The value right before one or more consumers, which share one `T`."""

    name: str
    sites: tuple[Site, ...]
    labels: Tensor
    """Per column, the label of its channel."""
    groups: Tensor
    """Per column, its group: `T` is zero between columns of different groups."""
    absorbers: tuple[Absorber, ...]
    scaled_by_width: bool = False
    """Whether the consumer divides by the square root of the number of columns in a group."""
    of_activations: bool = False
    """Whether both operands are activations, like the query and key of an attention."""

    @property
    def size(self) -> int:
        """Number of columns."""
        return len(self.labels)

    def columns(self, operand: Tensor, site: Site, at: Tensor | None = None) -> Tensor:
        """Return the operand as `Z` (rows * repeats, columns), for the rows `at` or for all."""
        operand, dims = _split_batch(operand, site)
        if at is None:
            rows = _as_matrix(operand, dims)
        else:
            rows = _some_rows(operand, dims, at.to(operand.device))
        if site.in_order and rows.shape[1] == self.size:
            return rows.clone() if at is None else rows  # never a view of the operand
        return rows[:, site.positions.to(operand.device)].reshape(-1, self.size)

    def rows(self, operand: Tensor, site: Site) -> int:
        """Return the number of rows of an operand. Each row holds all repeats."""
        operand, dims = _split_batch(operand, site)
        return operand.numel() // math.prod(operand.shape[dim] for dim in dims)

    def replaced(self, operand: Tensor, site: Site, kept: Tensor, T: Tensor) -> Tensor:
        """Return the operand with `Z` replaced by `Z[:, kept] @ T`.

        It has the memory layout of the operand, so that code that views it still can.
        """
        result = torch.empty_like(operand)
        operand, dims = _split_batch(operand, site)
        matrix = _as_matrix(operand, dims)
        places = site.positions.to(operand.device)
        Z = matrix[:, places]  # (rows, repeats, n)
        matrix = matrix.clone()
        kept, T = kept.to(Z.device), T.to(Z)
        matrix[:, places] = Z[..., kept] @ T  # (rows, repeats, k) @ (k, n)
        row_dims = [dim for dim in range(operand.ndim) if dim not in dims]
        shape = [operand.shape[dim] for dim in row_dims] + [operand.shape[dim] for dim in dims]
        order = [0] * operand.ndim
        for position, dim in enumerate([*row_dims, *dims]):
            order[dim] = position
        return result.copy_(matrix.reshape(shape).permute(order).reshape(result.shape))


def _split_batch(operand: Tensor, site: Site) -> tuple[Tensor, tuple[int, ...]]:
    """Return the operand with the batch split off a folded dim, and the site's dims in it."""
    if site.fold is None:
        return operand, site.dims
    folded_dim, length = site.fold
    dims = tuple(dim + 1 if dim >= folded_dim else dim for dim in site.dims)
    return operand.unflatten(folded_dim, (-1, length)), dims


def _as_matrix(operand: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return the operand as (rows, positions): `dims` become positions, all other dims rows."""
    row_dims = [dim for dim in range(operand.ndim) if dim not in dims]
    positions = 1
    for dim in dims:
        positions *= operand.shape[dim]
    return operand.permute([*row_dims, *dims]).reshape(-1, positions)


def _some_rows(operand: Tensor, dims: tuple[int, ...], at: Tensor) -> Tensor:
    """Return `_as_matrix(operand, dims)[at]` without making the other rows."""
    row_dims = [dim for dim in range(operand.ndim) if dim not in dims]
    rows = operand.permute([*row_dims, *dims])
    if rows.is_contiguous():
        return rows.reshape(-1, math.prod(rows.shape[len(row_dims) :])).index_select(0, at)
    index = torch.unravel_index(at, rows.shape[: len(row_dims)])
    return rows[index].reshape(len(at), -1)
