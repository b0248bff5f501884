"""What a budget works with: widths along the allocation's path, and networks built from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from interpress.allocation.paths import fit_budget
from interpress.allocation.plan import Plan
from interpress.allocation.problem import Problem, Widths
from interpress.allocation.registry import ALLOCATIONS
from interpress.allocation.rules.constant import at_fraction
from interpress.calibration.study import Study
from interpress.errors import ArgumentError
from interpress.evaluation.latency import latency_ratio
from interpress.method import Method
from interpress.network.build import build
from interpress.network.network import Network
from interpress.progress import Display

_PROBES = 7  # networks built in a bisection: the FLOPs are then known to 1 %

Trial = Callable[[Widths], tuple[Network, float, bool]]
"""From widths to the network, what was measured on it, and whether that is within the budget."""


@dataclass(frozen=True, eq=False)
class Search:
    """The widths that an allocation offers, and how to build a network from them."""

    study: Study
    problem: Problem
    method: Method
    memory: float
    bars: Display

    def path(self) -> Iterator[Widths]:
        """Yield the widths of the allocation, from the whole network down."""
        return ALLOCATIONS[self.method.allocation].path(self.problem)

    def widths_within(self, fraction: float, resource: str) -> Widths:
        """Return the widths that keep this fraction of a resource."""
        return fit_budget(self.problem, self.path(), fraction, resource)

    def constant_widths(self, fraction: float) -> Widths:
        """Return the same fraction of every space."""
        return at_fraction(self.problem, fraction)

    def build(self, widths: Widths, *, refit: bool | None = None) -> Network:
        """Build the network at these widths; `refit` overrides the method's."""
        method = self.method if refit is None else replace(self.method, refit=refit)
        plan = Plan.at_widths(widths, self.problem.orders)
        return build(self.study, plan, method, self.bars, memory=self.memory)

    def latency(self, network: Network) -> float:
        """Return the run time of a network relative to the original, on one calibration batch."""
        example = next(iter(self.study.require_data().batches()))
        return latency_ratio(network.model, self.study.original, example)

    def bisect(self, asked: str, trial: Trial, *, smaller_if_within: bool, remedy: str) -> Network:
        """Return the last network within a budget, from a bisection over the FLOPs kept.

        If a network is within the budget, the search goes on with smaller networks, or with larger
        ones if `smaller_if_within` is False.
        """
        path = list(self.path())
        low, high = self.problem.meter.total(path[-1]) / self.problem.meter.total({}), 1.0
        best: Network | None = None
        measured = []
        with self.bars.task(f"searching {asked}", _PROBES) as advance:
            for _ in range(_PROBES):
                fraction = (low + high) / 2
                widths = fit_budget(self.problem, iter(path), fraction, "flops")
                network, value, within = trial(widths)
                measured.append(value)
                best = network if within else best
                if within == smaller_if_within:
                    high = fraction
                else:
                    low = fraction
                advance(1)
        if best is None:
            nearest = max(measured) if smaller_if_within else min(measured)
            raise ArgumentError(
                f"{asked} cannot be reached: the nearest of {_PROBES} smaller networks reached "
                f"{nearest:.4g}; ask for less, exclude fewer layers, or {remedy}"
            )
        return best
