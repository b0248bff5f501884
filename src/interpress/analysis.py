"""One pass over the data, then any number of answers: every budget, every method, the trade-off."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

from torch import nn

from interpress.allocation import problem as allocate
from interpress.allocation.curve import Point, path_of, trade_off
from interpress.allocation.problem import Problem, WidthLimits, Widths
from interpress.budgets.budget import Budget
from interpress.budgets.rules.error import certified_widths
from interpress.checks import is_number, is_whole
from interpress.errors import ArgumentError
from interpress.evaluation.latency import latency_ratio
from interpress.graph.model_state import untouched
from interpress.method import METHODS, Method, method_of
from interpress.network.build import build
from interpress.network.network import Network
from interpress.pipeline.literal import recomputed
from interpress.pipeline.study import Study
from interpress.progress import Bars, bars
from interpress.result import Result
from interpress.storage.analysis_file import load_analysis, save_analysis

_PROBES = 7  # of an agreement or latency search


class Analysis:
    """What one pass over the calibration data tells about a model; see `interpress.analyze`."""

    def __init__(self, knowledge: Study, *, seed: int = 0, memory: float = 1.0) -> None:
        self._knowledge = knowledge
        self.seed, self.memory = seed, memory

    @property
    def spaces(self) -> Any:
        """The channel spaces of the model."""
        return self._knowledge.spaces

    def compress(
        self,
        *,
        flops: float | None = None,
        params: float | None = None,
        latency: float | None = None,
        agreement: float | None = None,
        error: float | None = None,
        width: float | None = None,
        method: str = "preserve",
        selection: str | None = None,
        allocation: str | None = None,
        refit: bool | None = None,
        correct: bool | None = None,
        balance: bool | None = None,
        recompute: bool = False,
        step: float = 0.05,
        round_to: int = 1,
        min_width: int = 1,
        progress: bool | None = None,
    ) -> Result:
        """A smaller network for one budget; options as for `interpress.compress`."""
        given = {
            "flops": flops, "params": params, "latency": latency,
            "agreement": agreement, "error": error, "width": width,
        }  # fmt: skip
        budget = Budget.of(given)
        chosen = checked_method(method, selection, allocation, refit, correct, balance, budget)
        limits = checked_limits(round_to, min_width)
        job = _Job(
            self._knowledge, budget, chosen, limits, checked_step(step), self.seed, self.memory
        )
        with bars(progress) as places, untouched(self._knowledge.model):
            return job.recomputed(places) if recompute else job.run(places)

    def curve(
        self,
        *,
        method: str = "preserve",
        selection: str | None = None,
        allocation: str | None = None,
        points: int = 50,
        round_to: int = 1,
        min_width: int = 1,
        progress: bool | None = None,
    ) -> list[Point]:
        """The predicted trade-off from the whole network down to the smallest; costs no data."""
        if not is_whole(points) or points < 2:
            raise ArgumentError(f"points={points!r}; give a whole number of at least 2")
        chosen = method_of(method).with_parts(selection, allocation)
        limits = checked_limits(round_to, min_width)
        with bars(progress) as places:
            return trade_off(self._knowledge, chosen, limits, points, places)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was measured to one safetensors file; calibration data stay out of it."""
        save_analysis(self._knowledge, self.seed, path)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: nn.Module,
        calibration: Any = None,
        *,
        forward: Any = None,
        memory: float = 1.0,
    ) -> Analysis:
        """A saved analysis of this very model.

        Without `calibration`, only what needs no data can be asked: `refit=False`, an allocation
        other than "measured" (unless that was measured before saving), and a selection that does
        not look at activations (as "thinet", "hrank" and "pfp" do).
        """
        check_memory(memory)
        knowledge, seed = load_analysis(path, model, calibration, forward)
        return cls(knowledge, seed=seed, memory=memory)


def checked_limits(round_to: int, min_width: int) -> WidthLimits:
    """Which widths are allowed, or what is wrong with that."""
    for name, value in (("round_to", round_to), ("min_width", min_width)):
        if not is_whole(value) or value < 1:
            raise ArgumentError(f"{name}={value!r}; give a whole number of at least 1")
    return WidthLimits(int(round_to), int(min_width))


def checked_method(
    name: str,
    selection: str | None,
    allocation: str | None,
    refit: bool | None,
    correct: bool | None,
    balance: bool | None,
    budget: Budget,
) -> Method:
    """The method with the parts that were asked for, or why they do not go together."""
    if budget.kind == "error":
        if correct is False:
            raise ArgumentError(
                "error= certifies how well T stands in for what is dropped, and correct=False "
                "leaves T out; ask for flops= or width=, or leave correct alone"
            )
        refit = bool(refit)  # the certificate is about T, which a refit replaces
    return method_of(name).with_parts(selection, allocation, refit, correct, balance)


def checked_step(step: float) -> float:
    """The step of iterative-id, or what is wrong with it."""
    if not is_number(step) or not 0 < step < 1:
        raise ArgumentError(
            f"step={step!r}; give the fraction of a layer to cut at a time, as 0.05"
        )
    return step


def check_memory(memory: float) -> None:
    """Refuse a bound that is none."""
    if not is_number(memory) or not 0 < memory < math.inf:
        raise ArgumentError(f"memory={memory!r}; give the GiB that a refit may hold, as in 1.0")


@dataclass(frozen=True, eq=False)
class _Job:
    """One budget, one method."""

    knowledge: Study
    budget: Budget
    method: Method
    limits: WidthLimits
    step: float
    seed: int
    memory: float

    def run(self, places: Bars) -> Result:
        """The smaller network."""
        kind, value = self.budget.kind, self.budget.value
        problem = self._problem(places)
        if kind in ("flops", "params"):
            path = path_of(problem, self.method.allocation, self.step)
            return self._result(allocate.fit_budget(problem, path, value, kind), places)
        if kind == "width":
            return self._result(allocate.constant(problem, value), places)
        if kind == "error":
            return self._result(certified_widths(self.knowledge, problem, value), places)
        return self._search(problem, places)

    def recomputed(self, places: Bars) -> Result:
        """Algorithm 2 to the letter: later layers are measured again after every step."""
        if self.method != METHODS["iterative-id"] or self.budget.kind != "flops":
            raise ArgumentError(
                "recompute=True is the literal loop of iterative-id, with none of its parts "
                f"replaced, for a flops= budget; got {self.method} and {self.budget}; leave "
                "recompute or the other options out"
            )
        allowed = self._problem(places).allowed
        built, widths = recomputed(self.knowledge, allowed, self.budget.value, self.step, places)
        return self._wrapped(built, widths)

    def _problem(self, places: Bars) -> Problem:
        resource = "params" if self.budget.kind == "params" else "flops"
        return self.knowledge.problem(self.method, resource, self.limits, places)

    def _build(self, widths: Widths, places: Bars) -> Network:
        return build(
            self.knowledge, widths, self.method, places, memory=self.memory, seed=self.seed
        )

    def _result(self, widths: Widths, places: Bars) -> Result:
        return self._wrapped(self._build(widths, places), widths)

    def _wrapped(self, built: Network, widths: Widths, latency: float | None = None) -> Result:
        return Result(
            self.budget, self.method, self.knowledge, widths, built, self.seed, self.limits, latency
        )

    def _search(self, problem: Problem, places: Bars) -> Result:
        """The fewest FLOPs that hold an agreement, the most that hold a time, by bisection."""
        path = list(path_of(problem, self.method.allocation, self.step))
        whole = problem.meter.total({})
        floor = problem.meter.total(path[-1]) / whole
        low, high = floor, 1.0
        best: tuple[Result, Widths] | None = None
        seen = []
        with places.job(f"searching {self.budget}", _PROBES) as advance:
            for _ in range(_PROBES):
                fraction = (low + high) / 2
                widths = allocate.fit_budget(problem, iter(path), fraction, "flops")
                result, measured, holds = self._tried(widths, places)
                seen.append(measured)
                best = (result, widths) if holds else best
                if holds == (self.budget.kind == "agreement"):
                    high = fraction  # go on with smaller networks
                else:
                    low = fraction
                advance(1)
        if best is None:
            extreme = max(seen) if self.budget.kind == "agreement" else min(seen)
            remedy = (
                "or give more calibration data"
                if self.budget.kind == "agreement"
                else "or calibrate in larger batches, if small ones are bound by overhead"
            )
            raise ArgumentError(
                f"{self.budget} cannot be held: the nearest of {_PROBES} smaller networks reached "
                f"{extreme:.4g}; ask for less, exclude fewer layers, {remedy}"
            )
        return best[0]

    def _tried(self, widths: Widths, places: Bars) -> tuple[Result, float, bool]:
        if self.budget.kind == "latency":
            plain = self.method.with_parts(refit=False)
            quick = build(self.knowledge, widths, plain, places)
            example = next(iter(self.knowledge.data().batches()))
            ratio = latency_ratio(quick.model, self.knowledge.model, example)
            holds = ratio <= self.budget.value
            built = self._build(widths, places) if holds and self.method.refit else quick
            return self._wrapped(built, widths, ratio), ratio, holds
        result = self._result(widths, places)
        if result.agreement is None or result.agreement.agreement is None:
            raise ArgumentError(
                "agreement= needs a network that decides; this one gives numbers. Use flops= or "
                "error=, or say what its output means with kind="
            )
        share = result.agreement.agreement
        return result, share, share >= self.budget.value
