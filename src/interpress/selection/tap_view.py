"""One tap as one space sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from interpress.calibration.halves import Halves
from interpress.linalg.elimination import Consumer
from interpress.linalg.factor import RFactor, safe_cholesky
from interpress.linalg.ordering import ColumnOrdering
from interpress.linalg.pivoting import order_as_given


@dataclass(frozen=True, eq=False)
class TapView:
    """The columns of one tap that belong to one space, unit by unit."""

    tap: str
    per_unit: Tensor
    """Columns of each unit: several for a head, usually one for a channel. A flattened channel has
    one column; its repeats are rows. A channel that is read elsewhere only has none."""
    _halves: Callable[[], Halves] = field(repr=False)
    _variance: Callable[[], float | None] = field(repr=False)
    _weight_gram: Callable[[], Tensor] = field(repr=False)
    _patch_consumer: Callable[[], Consumer | None] = field(repr=False)

    @cached_property
    def halves(self) -> Halves:
        """The rows of these columns in two halves of the examples.

        The columns of a unit stand side by side.
        """
        return self._halves()

    @property
    def factor(self) -> RFactor:
        """The same of all examples."""
        return self.halves.factor

    @cached_property
    def variance(self) -> float | None:
        """Variance of the consumer's output after its batch norm and residual sum.

        It is summed over channels; None if it was not measured.
        """
        return self._variance()

    def release(self) -> None:
        """Forget what was looked up; it is looked up again where it is asked for."""
        for name in ("halves", "variance", "patches", "H", "energy"):
            vars(self).pop(name, None)

    @cached_property
    def patches(self) -> Consumer | None:
        """The consumer with all its inputs free, kernel positions included, if measured."""
        return self._patch_consumer()

    @cached_property
    def H(self) -> Tensor:
        """`U @ U.T`, where `U` holds the weights that read these columns."""
        return self._weight_gram().to(self.factor.device)

    @cached_property
    def energy(self) -> float:
        """What a squared error here is relative to: the variance of the consumer's output.

        `||Z @ U||_F ** 2` where that variance was not measured.
        """
        if self.variance is None:
            return float((self.factor.G * self.H).sum())
        return self.variance * self.factor.rows

    def columns(self, units: Tensor) -> Tensor:
        """Return the columns of some units, in their order."""
        starts, counts = self.per_unit.cumsum(0) - self.per_unit, self.per_unit[units]
        within = torch.arange(int(counts.sum())) - _repeated(counts.cumsum(0) - counts, counts)
        return (_repeated(starts[units], counts) + within).to(self.factor.device)

    def widths(self, units: Tensor) -> Tensor:
        """Return (units + 1,) numbers of columns of the first k units."""
        return torch.cat([torch.zeros(1, dtype=torch.long), self.per_unit[units].cumsum(0)])

    def summed_by_unit(self, values: Tensor, dim: int = 0) -> Tensor:
        """Return values of columns, summed over the columns of each unit along one dim."""
        units = torch.arange(len(self.per_unit)).repeat_interleave(self.per_unit)
        shape = list(values.shape)
        shape[dim] = len(self.per_unit)
        return values.new_zeros(shape).index_add_(dim, units.to(values.device), values)

    def ordering(self, units: Tensor) -> ColumnOrdering:
        """Return the factorisation with the columns in the order of their units."""
        return order_as_given(self.factor, self.columns(units))

    def squared_error(self, units: Tensor, width: int) -> float:
        """Return `||(Z - Z[:, kept] @ T) @ U||_F ** 2` with the first `width` units kept."""
        kept, dropped = self.columns(units[:width]), self.columns(units[width:])
        G = self.factor.G
        if not len(kept):
            return max(float((G * self.H).sum()), 0.0)
        lower = safe_cholesky(G[kept][:, kept])
        if lower is None:
            return float(self.ordering(units).weighted_tails(self.H)[len(kept)]) ** 2
        side = torch.linalg.solve_triangular(lower, G[kept][:, dropped], upper=False)
        schur = torch.addmm(G[dropped][:, dropped], side.T, side, alpha=-1)
        return max(float((schur * self.H[dropped][:, dropped]).sum()), 0.0)


def _repeated(values: Tensor, counts: Tensor) -> Tensor:
    return values.repeat_interleave(counts)
