"""Compare plans for the same budget before one of them is refitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from interpress.allocation.plan import Plan
from interpress.calibration.study import Study
from interpress.data.calibration_set import Part
from interpress.evaluation.evaluator import Evaluator
from interpress.evaluation.held_out_loss import held_out_loss
from interpress.evaluation.tally import Agreement
from interpress.files.checkpoint import Checkpoint, digest
from interpress.method import Method
from interpress.network.compare_by_block import agreements_by_block
from interpress.progress import Display
from interpress.surgery.cut import Cut
from interpress.surgery.weights import shrunk_copy

ENOUGH_HELD_OUT = 32
"""Held-out examples from which they alone decide. With fewer, the examples to fit are cut into two
halves, and what is interpolated from one half is judged on the other."""
ENOUGH_TEXTS = 8
"""The same for language models, whose every example has many decisions."""
CLEARLY_LESS = 0.75
"""Another allocation is preferred to the usual one if its loss is at most this fraction of it. The
refit lowers these losses several times, and not equally, so small differences say little. In a
language model the refit changes little, so there any significant difference counts."""
_SIGNIFICANT = 2.0  # standard errors of the mean difference over examples
_FEWEST_FOR_ERROR = 5  # examples: fewer give no standard error worth the name


class CutNetwork(NamedTuple):
    """A network that was cut to a plan, before a refit."""

    cut: Cut
    model: nn.Module
    agreement: Agreement
    """On held-out examples."""


@dataclass(frozen=True)
class Comparison:
    """The allocations that were compared, and the loss of each."""

    best: str
    losses: Mapping[str, float]
    """Held-out losses; smaller is better. The first is the usual one. If one is clearly too large
    after the first examples, it is that of these."""
    refitted: bool = False
    """Whether the networks were refitted before they were compared."""
    close: tuple[str, ...] = ()
    """The other allocations that are not significantly worse than the best."""
    built: CutNetwork | None = field(default=None, repr=False, compare=False)
    """The best one's network before the refit, if held-out examples decided."""

    def __str__(self) -> str:
        return self.described()

    def described(self, loss: str = "loss") -> str:
        """Return the comparison as words; `loss` says what the losses are."""
        if len(self.losses) == 1:
            return f"{self.best}; the others that were tried give the same widths"
        others = sorted((loss, name) for name, loss in self.losses.items() if name != self.best)
        listed = ", ".join(f"{name} {loss:.3g}" for loss, name in others)
        when, here = "after" if self.refitted else "before", self.losses[self.best]
        text = f"{self.best}, {loss} {here:.3g} {when} the refit ({listed})"
        if any(other < here for other, _ in others):
            text += "; a lower loss counts only if it is clearly lower"
        return text


def is_enough_held_out(study: Study) -> bool:
    """Return whether the held-out examples alone decide."""
    fewest = ENOUGH_HELD_OUT if study.meaning.tokens is None else ENOUGH_TEXTS
    return study.held_examples >= fewest


class _Judged(NamedTuple):
    """The loss of a network, and that of every example where it is known."""

    loss: float
    examples: tuple[float, ...]
    built: CutNetwork | None = None


def compare(
    study: Study,
    plans: Mapping[str, Plan],
    method: Method,
    bars: Display,
    checkpoint: Checkpoint | None = None,
) -> Comparison:
    """Return which plan to build: the first one, unless another clearly loses less.

    Equal plans are built once.
    """
    checkpoint = checkpoint or Checkpoint()
    distinct: dict[str, Plan] = {}
    for name, plan in plans.items():
        if all(dict(plan.widths) != dict(other.widths) for other in distinct.values()):
            distinct[name] = plan
    part = f"comparison-{digest({name: dict(plan.widths) for name, plan in distinct.items()})}"
    if (saved := checkpoint.load(part)) is not None:
        record = saved.record
        return Comparison(record["best"], record["losses"], close=tuple(record["close"]))
    comparison = _compared(study, distinct, method, bars, checkpoint)
    record = {"best": comparison.best, "losses": dict(comparison.losses)}
    checkpoint.save(part, {}, {**record, "close": list(comparison.close)})
    return comparison


def compare_finished(agreements: Mapping[str, Agreement]) -> Comparison:
    """Return which finished network to take: the first one, unless another clearly loses less."""
    judged = {name: _Judged(held_out_loss(a), a.distances) for name, a in agreements.items()}
    best = _best_of(judged, share=1.0)
    return Comparison(best, {name: one.loss for name, one in judged.items()}, refitted=True)


def _best_of(judged: Mapping[str, _Judged], share: float) -> str:
    """Return the first name, or the one of least loss among those that clearly lose less."""
    best = usual = next(iter(judged))
    for name in judged:
        is_clear = _is_clearly_less(judged[name], judged[usual], share)
        if is_clear and judged[name].loss < judged[best].loss:
            best = name
    return best


def _compared(
    study: Study,
    distinct: Mapping[str, Plan],
    method: Method,
    bars: Display,
    checkpoint: Checkpoint,
) -> Comparison:
    judge = partial(_agreements, study, distinct, method, bars, checkpoint)
    judged = _judge(study, distinct, judge) if len(distinct) > 1 else {}
    best = next(iter(distinct))
    if judged:
        best = _best_of(judged, CLEARLY_LESS if study.meaning.tokens is None else 1.0)
    others = [name for name in judged if name != best]
    close = tuple(n for n in others if not _is_clearly_less(judged[best], judged[n], 1.0))
    losses = {name: one.loss for name, one in judged.items()} or {best: 0.0}
    built = judged[best].built if best in judged else None
    return Comparison(best, losses, close=close, built=built)


def _is_clearly_less(other: _Judged, usual: _Judged, share: float = CLEARLY_LESS) -> bool:
    """Return whether a loss is at most this share of the usual one, and not by chance."""
    if not other.loss <= share * usual.loss or len(other.examples) < len(usual.examples):
        return False  # what was judged on fewer examples was given up after those
    mean, error = _mean_difference(usual.examples, other.examples)
    return error is None or mean >= _SIGNIFICANT * error


def _mean_difference(first: Sequence[float], second: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean difference over the examples that both have, and its standard error.

    The error is None if these examples are too few for one.
    """
    both = min(len(first), len(second))
    if both < _FEWEST_FOR_ERROR:
        return 0.0, None
    pair = torch.tensor([first[:both], second[:both]], dtype=torch.float64)
    differences = pair[0] - pair[1]
    return float(differences.mean()), float(differences.std()) / both**0.5


def _contenders(agreements: Sequence[Agreement]) -> list[int]:
    """Return the usual network, and those that may still turn out to lose clearly less."""
    usual, *others = agreements
    if usual.others or not usual.distances:  # its loss is not a mean over examples
        return list(range(len(agreements)))
    allowed = [CLEARLY_LESS * distance for distance in usual.distances]
    running = [0]
    for index, other in enumerate(others, 1):
        excess, error = _mean_difference(other.distances, allowed)
        if error is None or not excess > _SIGNIFICANT * error:
            running.append(index)
    return running


def _judge(
    study: Study,
    plans: Mapping[str, Plan],
    agreements: Callable[[int | None], tuple[dict[str, Agreement], dict[str, CutNetwork]]],
) -> dict[str, _Judged]:
    """Return the losses of all plans on examples that they were not interpolated from."""
    built: dict[str, CutNetwork] = {}
    if is_enough_held_out(study):
        whole, built = agreements(None)
        parts = [whole]
    else:
        halves = (0, 1) if study.fit_examples > 1 else (0,)
        parts = [agreements(half)[0] for half in halves]
    return {
        name: _Judged(
            sum(held_out_loss(part[name]) for part in parts) / len(parts),
            tuple(distance for part in parts for distance in part[name].distances),
            built.get(name),
        )
        for name in plans
    }


def _agreements(
    study: Study,
    plans: Mapping[str, Plan],
    method: Method,
    bars: Display,
    checkpoint: Checkpoint,
    half: int | None,
) -> tuple[dict[str, Agreement], dict[str, CutNetwork]]:
    """Return the agreement of every plan's network, interpolated from all examples or one half.

    Also return these networks, unless they were built block by block.
    """
    if study.walk is not None:
        evaluator = _evaluator(study, half)
        found = agreements_by_block(study, plans, method, evaluator, half, bars, checkpoint)
        return found, {}
    with bars.task("comparing allocations", None):
        cuts = [cut_of(study, plan, method, half) for plan in plans.values()]
        networks = [shrunk_copy(cut) for cut in cuts]
        few = half is not None or study.meaning.tokens is not None  # of texts, close ones matter
        agreements = _evaluator(study, half).agreements(
            *networks, contenders=None if few else _contenders
        )
    together = zip(cuts, networks, agreements, strict=True)
    built = {name: CutNetwork(*one) for name, one in zip(plans, together, strict=True)}
    return dict(zip(plans, agreements, strict=True)), built


def _evaluator(study: Study, half: int | None) -> Evaluator:
    """Return what judges networks on examples that they were not interpolated from."""
    if half is None:
        return study.evaluator()
    part: Part = "first" if half else "second"
    return study.evaluator("all" if study.fit_examples == 1 else part)


def cut_of(study: Study, plan: Plan, method: Method, half: int | None = None) -> Cut:
    """Return the cut of a plan, interpolated from all examples or from one half."""
    T = {}
    if method.correct:
        T = study.interpolations(plan.kept, half, regularize=method.regularize)
    return Cut(study.spaces, plan.kept, T)
