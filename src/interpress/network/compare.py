"""Compare plans for the same budget before one of them is refitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from interpress.allocation.plan import Plan
from interpress.calibration.study import Study
from interpress.evaluation.tally import Agreement
from interpress.network.loss import held_out_loss
from interpress.surgery.cut import Cut
from interpress.surgery.weights import shrunk_copy

ENOUGH_HELD_OUT = 32
"""Held-out examples from which they alone decide. With fewer, the examples to fit are cut into two
halves, and what is interpolated from one half is judged on the other."""


@dataclass(frozen=True)
class Comparison:
    """The allocations that were compared, and the loss of each."""

    best: str
    losses: Mapping[str, float]
    """Of networks that are not refitted; smaller is better."""

    def __str__(self) -> str:
        others = sorted((loss, name) for name, loss in self.losses.items() if name != self.best)
        listed = ", ".join(f"{name} {loss:.4g}" for loss, name in others)
        return f"{self.best} (loss {self.losses[self.best]:.4g}; {listed})"


def compare(study: Study, plans: Mapping[str, Plan], *, correct: bool) -> Comparison:
    """Return which plan loses least. Equal plans are built once; the first of them wins."""
    distinct: dict[str, Plan] = {}
    for name, plan in plans.items():
        if all(dict(plan.widths) != dict(other.widths) for other in distinct.values()):
            distinct[name] = plan
    losses = _losses(study, distinct, correct)
    return Comparison(min(losses, key=lambda name: losses[name]), losses)


def _losses(study: Study, plans: Mapping[str, Plan], correct: bool) -> dict[str, float]:
    if study.held_examples >= ENOUGH_HELD_OUT:
        agreements = _judged(study, plans, correct, None)
        return {name: held_out_loss(agreement) for name, agreement in agreements.items()}
    halves = [_judged(study, plans, correct, half) for half in _halves(study)]
    return {
        name: sum(held_out_loss(half[name]) for half in halves) / len(halves) for name in plans
    }


def _halves(study: Study) -> tuple[int, ...]:
    """Return the halves to fit: both, or the only one if there is a single example."""
    return (0, 1) if study.fit_examples > 1 else (0,)


def _judged(
    study: Study, plans: Mapping[str, Plan], correct: bool, half: int | None
) -> dict[str, Agreement]:
    """Return the agreement of every plan's network, interpolated from all examples or one half."""
    networks = []
    for plan in plans.values():
        T = study.interpolations(plan.kept, half) if correct else {}
        networks.append(shrunk_copy(Cut(study.spaces, plan.kept, T)))
    if half is None:
        evaluator = study.evaluator()
    else:
        part = "all" if study.fit_examples == 1 else "first" if half else "second"
        evaluator = study.evaluator(part)
    return dict(zip(plans, evaluator.agreements(*networks), strict=True))
