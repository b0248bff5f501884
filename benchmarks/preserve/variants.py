"""Variants of compression and distillation that are compared with the released ones."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from torch import Tensor, nn

import interpress
from benchmarks.experiment import Row
from benchmarks.preserve.ahead import looking_ahead
from benchmarks.preserve.features import Features, features_alone, matching_features
from interpress import Analysis, Method, Result
from interpress.allocation.plan import Plan
from interpress.allocation.problem import WidthLimits
from interpress.allocation.registry import ALLOCATIONS
from interpress.errors import ArgumentError
from interpress.evaluation.held_out_loss import held_out_loss
from interpress.files.checkpoint import Checkpoint
from interpress.graph.model_state import untouched
from interpress.network.build import build
from interpress.progress import display

_TRIAL = 0.2
"""The part of the training that every candidate gets before one of them is chosen."""
_FEATURES_FIRST = 1 / 3
"""The part of the training that compares features only."""
_SPLITS = 3
"""Held-out splits that choose an allocation together."""


@dataclass(frozen=True, eq=False)
class Start:
    """What all variants start from: a network, images, a budget, and how long to train."""

    model: nn.Module
    calibration: Tensor
    judged: Any
    """Other images, on which agreement is measured."""
    flops: float
    seed: int
    minutes: float | None
    steps: int | None
    """At most this many gradient steps, whatever the time."""
    _analyses: dict[int, Analysis] = field(default_factory=dict)

    def analysis(self, split: int = 0) -> Analysis:
        """Return the analysis of the product; every split holds other images out."""
        if split not in self._analyses:
            self._analyses[split] = self.new_analysis(split)
        return self._analyses[split]

    def new_analysis(self, split: int = 0) -> Analysis:
        """Analyse the network."""
        return interpress.analyze(self.model, self.calibration, seed=self.seed + 1000 * split)

    @cached_property
    def compressed(self) -> Result:
        """The network of the product before distillation."""
        return self.analysis().compress(flops=self.flops)

    @property
    def allocations(self) -> list[str]:
        """The allocations that the product compares on this network."""
        spaces = self.analysis().spaces
        return [name for name in Method().candidates if ALLOCATIONS[name].differs(spaces)]

    def candidates(self, split: int = 0) -> dict[str, Result]:
        """Return the network of every allocation; of those with equal widths, the first."""
        found: dict[str, Result] = {}
        for name in self.allocations:
            method = Method(allocation=name)
            try:
                result = self.analysis(split).compress(flops=self.flops, method=method)
            except ArgumentError:  # this allocation cannot meet the budget
                continue
            if all(result.widths != other.widths for other in found.values()):
                found[name] = result
        return found

    def distilled(self, result: Result, part: float = 1.0) -> Result:
        """Return a result after a part of the training; the parts of a run add up to 1."""
        if self.steps is not None:
            return result.distill(steps=max(1, round(part * self.steps)))
        assert self.minutes is not None
        return result.distill(minutes=part * self.minutes)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one variant gives."""

    before: Result
    after: Result
    earlier: tuple[Result, ...] = ()
    """Distillations that came before the last one, those of candidates included."""
    notes: Row = field(default_factory=dict)
    """What else is to be recorded."""

    @property
    def steps(self) -> int:
        """All gradient steps that the variant took."""
        done = [result.network.distillation for result in (*self.earlier, self.after)]
        return sum(one.steps for one in done if one is not None)


Variant = Callable[[Start], Outcome]


def released(start: Start) -> Outcome:
    """Compress and distil as the product does it."""
    return Outcome(start.compressed, start.distilled(start.compressed))


def match_features(start: Start) -> Outcome:
    """Distil with the errors of features added to those of the outputs, with equal weight."""
    with matching_features(Features.of(start.compressed)):
        return Outcome(start.compressed, start.distilled(start.compressed))


def reconstruct_blocks(start: Start) -> Outcome:
    """Train every layer on its own feature for a third of the training, then all as usual.

    A layer reads what the smaller network computes before it, as in the refit.
    """
    return _features_first(start, apart=True)


def match_features_first(start: Start) -> Outcome:
    """Train all layers together on all features for a third of the training, then as usual."""
    return _features_first(start, apart=False)


def _features_first(start: Start, *, apart: bool) -> Outcome:
    with features_alone(Features.of(start.compressed), apart=apart):
        first = start.distilled(start.compressed, _FEATURES_FIRST)
    done = first.network.distillation
    notes = {"features kept": done is not None and done.kept}
    after = start.distilled(first, 1 - _FEATURES_FIRST)
    return Outcome(start.compressed, after, (first,), notes)


def reallocate(start: Start) -> Outcome:
    """Distil every allocation's network for a fifth, then only the best on held-out images."""
    candidates = start.candidates()
    tried = {name: start.distilled(result, _TRIAL) for name, result in candidates.items()}
    losses = {name: _loss(result) for name, result in tried.items()}
    best = min(losses, key=losses.__getitem__)
    after = start.distilled(tried[best], 1 - _TRIAL)
    notes = {"allocation": best, "losses": losses}
    return Outcome(candidates[best], after, tuple(tried.values()), notes)


def look_ahead(start: Start, *, scores: bool = False) -> Outcome:
    """Select and allocate by what an error does to the predictions, all layers ahead."""
    with looking_ahead(scores=scores):
        result = start.new_analysis().compress(flops=start.flops)
    return Outcome(result, start.distilled(result))


def select_ahead(start: Start, *, scores: bool = False) -> Outcome:
    """Select by that only; the widths are those of the product."""
    with looking_ahead(scores=scores):
        analysis = start.new_analysis()
    study, method = analysis.study, Method()
    budget = {"flops": start.flops}
    options = analysis.options.asking(budget, method, WidthLimits())
    with display(False) as bars, untouched(study.original):
        orders, _ = analysis._ordered(options, bars, Checkpoint())
        plan = Plan.at_widths(start.compressed.widths, orders)
        network = build(study, plan, method, bars)
    result = Result(options, study, None, network)
    notes = {"allocation": start.compressed.allocation}
    return Outcome(result, start.distilled(result), notes=notes)


def choose_on_splits(start: Start) -> Outcome:
    """Choose the allocation by finished networks' held-out loss, averaged over three splits."""
    tried = [start.candidates(split) for split in range(_SPLITS)]
    losses = {
        name: [_loss(candidates[name]) for candidates in tried]
        for name in tried[0]
        if all(name in candidates for candidates in tried)
    }
    best = min(losses, key=lambda name: statistics.mean(losses[name]))
    notes = {"allocation": best, "losses": losses}
    return Outcome(tried[0][best], start.distilled(tried[0][best]), notes=notes)


def _loss(result: Result) -> float:
    assert result.agreement is not None
    return held_out_loss(result.agreement)


VARIANTS: Mapping[str, Variant] = {
    "released": released,
    "feature-matching": match_features,
    "features-first": match_features_first,
    "block-wise": reconstruct_blocks,
    "re-allocated": reallocate,
    "looks-ahead": look_ahead,
    "selects-ahead": select_ahead,
    "looks-ahead-scores": partial(look_ahead, scores=True),
    "selects-ahead-scores": partial(select_ahead, scores=True),
    "several-splits": choose_on_splits,
}
"""The variants by their names on the command line, the released one first."""
