"""What a budget works with: widths along the allocation's path, and networks built from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from interpress.allocation.paths import fit_budget
from interpress.allocation.plan import Plan
from interpress.allocation.problem import Problem, Widths
from interpress.allocation.registry import ALLOCATIONS
from interpress.allocation.rules.constant import at_fraction
from interpress.calibration.study import Study
from interpress.errors import ArgumentError
from interpress.evaluation.latency import ROUNDS, latency_ratio
from interpress.files.checkpoint import Checkpoint
from interpress.method import Method
from interpress.network.build import build
from interpress.network.compare import Comparison, CutNetwork, compare, compare_finished
from interpress.network.network import Network
from interpress.progress import Display

_UNIFORM = ("constant", "heads-per-group", "heads-last")
"""Allocations that a language model must not fall behind."""
_PROBES = 7  # networks built in a bisection: the FLOPs are then known to 1 %

Trial = Callable[[Widths], tuple[Network, float, bool]]
"""From widths to the network, what was measured on it, and whether that is within the budget."""


@dataclass(frozen=True)
class Choice:
    """An allocation and its widths, and what it was compared with."""

    allocation: str
    widths: Mapping[str, int]
    comparison: Comparison | None = None
    network: Network | None = None
    """The finished network, if finished networks were compared."""


@dataclass(frozen=True, eq=False)
class Search:
    """The widths that an allocation offers, and how to build a network from them."""

    study: Study
    problems: Mapping[str, Problem]
    """The problem as every allocation to compare sees it; the first one is the usual one."""
    method: Method
    memory: float | None
    bars: Display
    checkpoint: Checkpoint = field(default_factory=Checkpoint)

    @property
    def usual(self) -> str:
        """The usual allocation: the first of those that are compared."""
        return next(iter(self.problems))

    @property
    def problem(self) -> Problem:
        """The problem as the usual allocation sees it."""
        return self.problems[self.usual]

    def best_within(self, fraction: float, resource: str) -> Choice:
        """Return the widths that keep this fraction of a resource and lose least."""
        plans: dict[str, Plan] = {}
        failures: list[ArgumentError] = []
        for name in self._compared:
            try:
                widths = self._widths_within(name, fraction, resource)
                plans[name] = self.problems[name].plan(widths)
            except ArgumentError as error:
                failures.append(error)
        if not plans:
            raise failures[0]
        if len(plans) == 1 or self.study.data is None:
            return Choice(next(iter(plans)), next(iter(plans.values())).widths)
        if self._predicts_tokens:
            return self._not_behind_uniform(plans)
        comparison = compare(self.study, plans, self.method, self.bars, self.checkpoint)
        return Choice(comparison.best, plans[comparison.best].widths, comparison)

    @property
    def _compared(self) -> list[str]:
        """The allocations to compare. Networks of a language model are costly, so few of them."""
        names = (self.usual, *_UNIFORM) if self._predicts_tokens else self.problems
        return [name for name in names if name in self.problems]

    @property
    def _predicts_tokens(self) -> bool:
        return self.study.meaning.tokens is not None

    def _not_behind_uniform(self, plans: Mapping[str, Plan]) -> Choice:
        """Return the usual plan, or a uniform one if that is better on held-out text.

        If others are not significantly worse than the best before the refit, these networks and
        the best one are refitted and compared again.
        """
        usual = next(iter(plans))
        if len({tuple(plan.widths.items()) for plan in plans.values()}) == 1:
            return Choice(usual, plans[usual].widths)
        comparison = compare(self.study, plans, self.method, self.bars, self.checkpoint)
        if not comparison.close or not self.method.refit:
            return Choice(comparison.best, plans[comparison.best].widths, comparison)
        unsettled = [name for name in plans if name in (comparison.best, *comparison.close)]
        networks = {name: self.build(plans[name].widths) for name in unsettled}
        agreements = {n: one.agreement for n, one in networks.items() if one.agreement is not None}
        comparison = compare_finished(agreements)
        best = comparison.best
        return Choice(best, plans[best].widths, comparison, networks[best])

    def usual_widths(self, fraction: float, resource: str) -> Widths:
        """Return the widths of the usual allocation that keep this fraction of a resource."""
        return self._widths_within(self.usual, fraction, resource)

    def _widths_within(self, allocation: str, fraction: float, resource: str) -> Widths:
        """Return the widths of one allocation; untrusted spaces shrink only if they must."""
        problem = self.problems[allocation]
        path = ALLOCATIONS[allocation].path
        untrusted = problem.orders.untrusted if self.method.needs_trust else {}
        trusted = problem.sparing(untrusted)
        try:
            return fit_budget(trusted, path(trusted), fraction, resource)
        except ArgumentError:
            if not untrusted:
                raise
            return fit_budget(problem, path(problem), fraction, resource)

    def constant_widths(self, fraction: float) -> Widths:
        """Return the same fraction of every space."""
        return at_fraction(self.problem, fraction)

    def build_best(self, fraction: float, resource: str) -> Network:
        """Build the network of the best allocation for a budget."""
        choice = self.best_within(fraction, resource)
        comparison = choice.comparison
        known = None if comparison is None else comparison.built
        network = choice.network or self.build(choice.widths, known=known)
        if comparison is not None:  # the finished network does not hold what it was made from
            comparison = replace(comparison, built=None)
        return replace(network, comparison=comparison)

    def build(
        self,
        widths: Mapping[str, int],
        *,
        refit: bool | None = None,
        known: CutNetwork | None = None,
    ) -> Network:
        """Build the network at these widths; options as for the function `build`."""
        method = self.method if refit is None else replace(self.method, refit=refit)
        plan = self.problem.plan(widths)
        return build(
            self.study,
            plan,
            method,
            self.bars,
            memory=self.memory,
            checkpoint=self.checkpoint,
            known=known,
        )

    def _smallest(self) -> Widths:
        """Return the widths at the end of the usual allocation's path."""
        *_, last = ALLOCATIONS[self.usual].path(self.problem)
        return last

    def latency(self, network: Network, *, thorough: bool = False) -> float:
        """Return the run time of a network relative to the original, on one calibration batch.

        It is the median of a few pairs of runs; if `thorough`, of all pairs in two seconds.
        """
        example = next(iter(self.study.require_data().batches())).at_home(self.study.original)
        rounds = None if thorough else ROUNDS
        return latency_ratio(network.model, self.study.original, example, rounds=rounds)

    def bisect(
        self,
        asked: str,
        trial: Trial,
        *,
        smaller_if_within: bool,
        remedy: str,
        nearest: Callable[[list[float]], float] = max,
    ) -> Network:
        """Return the last network within a budget, from a bisection over the FLOPs kept.

        If a network is within the budget, the search goes on with smaller networks, or with larger
        ones if `smaller_if_within` is False. `remedy` says what to do if no network is within it.
        `nearest` picks what is nearest to the budget from
        what was measured.
        """
        meter, smallest = self.problem.meter, self._smallest()
        low, high = meter.total(smallest) / meter.total({}), 1.0
        choice = self.best_within((low + high) / 2, "flops")
        best: Network | None = None
        measured = []
        with self.bars.task(f"searching {asked}", _PROBES) as advance:
            for _ in range(_PROBES):
                fraction = (low + high) / 2
                widths = self._widths_within(choice.allocation, fraction, "flops")
                network, value, within = trial(widths)
                measured.append(value)
                best = replace(network, comparison=choice.comparison) if within else best
                if within == smaller_if_within:
                    high = fraction
                else:
                    low = fraction
                advance(1)
        if best is None:
            raise ArgumentError(
                f"{asked} cannot be reached: the nearest of {_PROBES} smaller networks reached "
                f"{nearest(measured):.4g}; {remedy}"
            )
        return best
