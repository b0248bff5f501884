"""The rows of a tap in two halves of the examples, to tell what they determine from noise.

What is fitted to one half is judged on the other, so no error is predicted from the rows it was
fitted to. The two halves also choose how strongly an interpolation is regularised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from interpress.linalg.factor import RFactor, safe_cholesky

RIDGES = (1e-3, 1e-2, 1e-1)
"""Ridges to choose from, relative to the mean diagonal."""
LOCAL = (0.1, 1.0, 10.0)
"""Weights to choose from for the moments from before an average, scaled to the same size."""
_MANY_ROWS = 8  # per column and half
_SAMPLED = 128
"""Dropped columns on which priors are compared, if there are more: their errors are alike, so these
are enough for a choice between a few priors, at a fraction of the work."""
_NEARLY_NONE = 1e-9  # ridge that only makes a solution unique


@dataclass(frozen=True)
class Prior:
    """What is added to second moments before they are solved: a ridge, and moments of more rows."""

    ridge: float = 0.0
    local: float = 0.0


@dataclass(frozen=True, eq=False)
class Halves:
    """Second moments of a tap's rows. Columns of different groups are orthogonal."""

    factor: RFactor
    """Of all rows."""
    second: Tensor
    """(n, n) Gram matrix of the second half."""
    totals: Tensor
    """(2, n) sums of the rows of each half."""
    rows: tuple[int, int]
    local: Tensor | None = None
    """(2, n, n) second moments, per half, of the same channels before they were averaged over
    positions."""

    @property
    def both(self) -> bool:
        """Whether each half has a row."""
        return min(self.rows) > 0

    def moments(self, half: int) -> Tensor:
        """Return the second moments per row of one half."""
        rows = max(self.rows[half], 1)
        return self.second / rows if half else (self.factor.G - self.second).div_(rows)

    def select(self, columns: Tensor) -> Halves:
        """Return the same for some columns, in their order."""
        if torch.equal(columns.cpu(), torch.arange(self.factor.n)):
            return self
        index = columns.to(self.second.device)
        local = None if self.local is None else self.local[:, index][:, :, index]
        second, totals = self.second[index][:, index], self.totals[:, index]
        return Halves(self.factor.select(columns), second, totals, self.rows, local)

    @property
    def _candidates(self) -> list[Prior]:
        """The priors to choose from."""
        candidates = [Prior(ridge) for ridge in RIDGES]
        if self.local is not None:
            candidates += [Prior(RIDGES[0], weight) for weight in LOCAL]
        return candidates

    @cached_property
    def prior(self) -> Prior:
        """The prior with which every other column interpolates the rest best on other rows."""
        candidates = self._candidates
        if not self.both:
            return candidates[-1]
        kept = torch.arange(0, self.factor.n, 2, device=self.second.device)
        return min(candidates, key=lambda prior: self._sampled_error(kept, prior))

    def for_kept(self, kept: Tensor, half: int | None = None) -> RFactor:
        """Return the moments to interpolate the other columns from the kept ones with.

        They are those of all rows, or of one half if both have rows. The prior is left out if rows
        are many, or if some columns depend on others and their interpolation is better without it.
        """
        half = half if self.both else None
        if self.many or (self._is_singular and self._is_better_alone(kept)):
            return self.factor if half is None else self.with_prior(Prior(), half)
        return self.with_prior(self.prior, half)

    @property
    def many(self) -> bool:
        """Whether there are so many rows that a prior makes no difference."""
        return min(self.rows) >= _MANY_ROWS * self.factor.n

    @cached_property
    def _is_singular(self) -> bool:
        """Whether some columns depend on others in one half, as they must if rows are few."""
        return self.both and safe_cholesky(self.moments(0)) is None

    def _is_better_alone(self, kept: Tensor) -> bool:
        """Return whether one half interpolates the other better without the prior."""
        with_prior = self._sampled_error(kept, self.prior, halves=(0,))
        return self._sampled_error(kept, Prior(), halves=(0,)) <= with_prior

    @cached_property
    def distrust(self) -> str | None:
        """Why no interpolation from these rows can be trusted; None if it can."""
        if not self.both:
            return f"its {sum(self.rows)} rows cannot be divided into fitted and other rows"
        kept = torch.arange(0, self.factor.n, 2, device=self.second.device)
        dropped = _sample(_others(kept, self.factor.n))
        size = float(self.factor.G.diagonal()[dropped].sum()) / sum(self.rows)
        # one prior is enough to trust the rows, and the best one takes several times as long
        if size == 0 or self._sampled_error(kept, self._candidates[0]) < size:
            return None
        error = self._sampled_error(kept, self.prior)
        if error < size:
            return None
        return (
            f"from {sum(self.rows)} rows, interpolated channels are wrong by {error / size:.0%} of "
            "their size on rows that were not fitted"
        )

    def error(self, kept: Tensor, prior: Prior, H: Tensor | None = None) -> float:
        """Return the squared error per row of `T` on the half of the rows it was not fitted to.

        This is the mean of both directions. `H` weighs the dropped columns; without it, all count
        the same.
        """
        dropped = _others(kept, self.factor.n)
        return sum(self._error(half, kept, dropped, prior, H) for half in (0, 1)) / 2

    def _sampled_error(self, kept: Tensor, prior: Prior, halves: Sequence[int] = (0, 1)) -> float:
        """Return the mean error of some halves, at some dropped columns if they are many."""
        dropped = _sample(_others(kept, self.factor.n))
        errors = [self._error(half, kept, dropped, prior, None) for half in halves]
        return sum(errors) / len(errors)

    def _error(
        self, half: int, kept: Tensor, dropped: Tensor, prior: Prior, H: Tensor | None
    ) -> float:
        if H is None:
            return max(self._trace(half, kept, dropped, prior), 0.0)
        E = self._residual(half, kept, prior)
        return max(float((E * H[dropped][:, dropped]).sum()), 0.0)

    def _trace(self, half: int, kept: Tensor, dropped: Tensor, prior: Prior) -> float:
        """Return the summed diagonal of `_residual` at some dropped columns."""
        T, held = self._fitted(half, kept, dropped, prior), self.moments(1 - half)
        held_rows = held.index_select(0, kept)
        cross = held_rows.index_select(1, dropped)  # (k, d)
        error = held.diagonal()[dropped].sum() - 2 * (T * cross).sum()
        return float(error + (T * (held_rows.index_select(1, kept) @ T)).sum())

    def _fitted(self, half: int, kept: Tensor, dropped: Tensor, prior: Prior) -> Tensor:
        """Return `T` of one half, at some dropped columns."""
        return _solution(self._add_prior(self.moments(half), prior, half), kept, dropped)

    def _residual(self, half: int, kept: Tensor, prior: Prior) -> Tensor:
        """Return second moments: what `T` of one half leaves of dropped columns of the other."""
        held = self.moments(1 - half)
        dropped = _others(kept, len(held))
        T = self._fitted(half, kept, dropped, prior)
        cross = held[kept][:, dropped]  # (k, d)
        side = T.T @ cross
        return held[dropped][:, dropped] - side - side.T + T.T @ (held[kept][:, kept] @ T)

    def relative_error(self, kept: Tensor) -> float:
        """Return `||Z - Z[:, kept] @ T||_2 / ||Z||_2` on rows that were not fitted.

        It is the larger of both directions; 1 if there is only one half.
        """
        if not self.both:
            return 1.0
        prior = self.prior if not self._is_singular or not self._is_better_alone(kept) else Prior()
        ratios = []
        for half in (0, 1):
            lost = torch.linalg.eigvalsh(self._residual(half, kept, prior))[-1]
            whole = torch.linalg.eigvalsh(self.moments(1 - half))[-1]
            ratios.append(float(lost.clamp(min=0) / whole.clamp(min=1e-300)) ** 0.5)
        return max(ratios)

    def with_prior(self, prior: Prior, half: int | None = None) -> RFactor:
        """Return the factor of all rows, or of one half, with the prior added."""
        whole = self.factor.G.clone() if half is None else self.moments(half) * self.rows[half]
        gram = self._add_prior(whole, prior, half)
        return RFactor(self.factor.rows, self.factor.floor, gram=gram)

    def _add_prior(self, total: Tensor, prior: Prior, half: int | None) -> Tensor:
        """Add the prior in proportion to moments of one half or of all rows, in place."""
        size = total.diagonal().mean()
        if prior.local and self.local is not None:
            local = self.local.mean(0) if half is None else self.local[half]
            scale = size / local.diagonal().mean().clamp(min=1e-300)
            total += prior.local * scale * local
        total.diagonal().add_(prior.ridge * size)
        return total


def _others(kept: Tensor, n: int) -> Tensor:
    """Return the columns that are not kept, ascending."""
    is_dropped = torch.ones(n, dtype=torch.bool, device=kept.device)
    is_dropped[kept] = False
    return torch.nonzero(is_dropped).reshape(-1)


def _sample(dropped: Tensor) -> Tensor:
    """Return evenly spaced ones of the dropped columns, on which an error is measured."""
    count = min(len(dropped), _SAMPLED)
    return dropped[torch.arange(count, device=dropped.device) * len(dropped) // max(count, 1)]


def _solution(moments: Tensor, kept: Tensor, dropped: Tensor) -> Tensor:
    """Return `T` (k, d) that interpolates dropped columns from kept ones."""
    rows = moments.index_select(0, kept)
    system = rows.index_select(1, kept)
    added = _NEARLY_NONE * float(moments.diagonal().mean().clamp(min=1e-300))
    while True:
        system.diagonal().add_(added)
        lower, failed = torch.linalg.cholesky_ex(system)
        if not int(failed):
            return torch.cholesky_solve(rows.index_select(1, dropped), lower)
        added *= 100
