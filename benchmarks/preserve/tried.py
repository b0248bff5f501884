"""What else was tried for more agreement, before and after distillation."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterator

import torch

import interpress
from benchmarks.examples import paired_difference
from benchmarks.experiment import Row
from benchmarks.preserve.task import Task, show_progress
from benchmarks.preserve.variants import VARIANTS, Outcome, Start


def tried(task: Task) -> Iterator[Row]:
    """Measure variants of compression and distillation beside the released ones.

    All variants of a run have the same images. A variant that fails has a row with the reason. The
    difference from `released` is measured on the same images, so its standard error is small.
    """
    options = task.options
    runs = [(n, s, b) for n in task.networks for s in task.seeds for b in task.budgets]
    for name, seed, budget in show_progress(runs, "tried"):
        model, calibration, judged = task.subject(name, seed)
        minutes = None if options.steps else options.minutes
        start = Start(model, calibration, judged, budget, seed, minutes, options.steps)
        about = {"network": name, "seed": seed, "asked": budget, "images": len(calibration)}
        usual: tuple[Row, Row] | None = None
        for variant in sorted(options.variants, key=list(VARIANTS).index):
            row = {**about, "variant": variant, "minutes": minutes, "limit": options.steps}
            begun = time.perf_counter()
            try:
                outcome = VARIANTS[variant](start)
                seconds = time.perf_counter() - begun
                judgements = _judged(start, outcome.before), _judged(start, outcome.after)
                usual = judgements if variant == "released" else usual
                row |= _measured(outcome, judgements, usual)
            except Exception as problem:  # the other variants are measured all the same
                traceback.print_exc(file=sys.stderr)
                row["failed"] = f"{type(problem).__name__}: {problem}".splitlines()[0]
                seconds = time.perf_counter() - begun
            yield {**row, "seconds": seconds}
            if task.device.startswith("cuda"):
                torch.cuda.empty_cache()


def _judged(start: Start, result: interpress.Result) -> Row:
    """Return how a network agrees with the original on the other images."""
    agreement = interpress.agreement(start.model, result.model, start.judged)
    assert agreement.agreement is not None
    return {
        "agreement": agreement.agreement,
        "divergence": agreement.divergence,
        "flips": [flip.index for flip in agreement.flips],
        "judged": agreement.examples,
    }


def _measured(outcome: Outcome, judgements: tuple[Row, Row], usual: tuple[Row, Row] | None) -> Row:
    """Return the figures of one variant, in percent and points."""
    before, after = judgements
    done = outcome.after.network.distillation
    row: Row = {
        "flops": outcome.after.flops,
        "allocation": outcome.after.allocation,
        "before": 100 * before["agreement"],
        "agreement": 100 * after["agreement"],
        "divergence": [before["divergence"], after["divergence"]],
        "judged": after["judged"],
        "steps": outcome.steps,
        "kept": done is not None and done.kept,
        "loss": None if done is None else [done.before, done.after],
        **outcome.notes,
    }
    if usual is not None:
        for key, first, second in zip(("gain before", "gain"), usual, judgements, strict=True):
            mean, error = paired_difference(first, second)
            row[key] = [100 * (0.0 - mean), 100 * error]
    return row
