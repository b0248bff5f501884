"""A finished smaller network and how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from interpress.allocation.plan import Plan
from interpress.distillation.record import Distillation
from interpress.evaluation.tally import Agreement
from interpress.lowrank.record import LowRank
from interpress.network.compare import Comparison
from interpress.network.tap_errors import TapError
from interpress.refit.refit import RefitResult
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import Proof


@dataclass(frozen=True, eq=False)
class Network:
    """A smaller network, the plan it was built from, and the evidence."""

    model: nn.Module
    plan: Plan
    cut: Cut
    proof: Proof
    agreement: Agreement | None
    """On held-out calibration data; None if there are none."""
    refit: RefitResult | None = None
    """What the refit did; None if it was not asked for."""
    refit_kept: bool = False
    """Whether `model` has the refitted weights."""
    comparison: Comparison | None = None
    """The allocations that were compared, if several were."""
    warnings: tuple[str, ...] = ()
    """What the user was warned about."""
    errors: Mapping[str, TapError] | None = None
    """The errors of all taps, if they were computed while the network was built."""
    distillation: Distillation | None = None
    """What gradient steps did after that; None if they were not asked for."""
    low_rank: LowRank | None = None
    """The layers that became two; None if that was not asked for."""
    latency: float | None = None
    """Measured run time relative to the original, if that was the budget."""

    @property
    def ranks(self) -> dict[str, int]:
        """The rank of every layer that became two, by the name of its module."""
        return {} if self.low_rank is None else self.low_rank.ranks

    @property
    def sizes(self) -> dict[str, int]:
        """The widths of spaces and the ranks of layers."""
        return dict(self.plan.widths) | {f"rank of {n}": rank for n, rank in self.ranks.items()}
