"""Agreement before and after distillation."""

from __future__ import annotations

from collections.abc import Iterator

import interpress
from benchmarks.experiment import Row
from benchmarks.preserve.task import Task, show_progress


def distill(task: Task) -> Iterator[Row]:
    """Measure agreement before and after a distillation without labels.

    The images to train on are the calibration images, of the first source of `--calibration`.
    EfficientNet-Lite2 has one split of its ImageNet samples.
    """
    options = task.options
    source = options.calibration[0]
    runs = [(n, s, b) for n in task.networks for s in task.seeds for b in task.budgets]
    for name, seed, budget in show_progress(runs, "distill"):
        model, calibration, testing = task.subject(name, seed, source)
        start = interpress.compress(
            model, calibration, flops=budget, lowrank=options.lowrank, seed=seed
        )
        before = interpress.agreement(model, start.model, testing)
        result = start.distill(minutes=options.minutes)
        after = interpress.agreement(model, result.model, testing)
        done = result.network.distillation
        assert done is not None
        assert before.agreement is not None
        assert after.agreement is not None
        yield {
            "network": name,
            "seed": seed,
            "calibration": source,
            "images": len(calibration),
            "method": "low rank" if options.lowrank else "preserve",
            "asked": budget,
            "flops": result.flops,
            "minutes": options.minutes,
            "before": 100 * before.agreement,
            "agreement": 100 * after.agreement,
            "steps": done.steps,
            "kept": done.kept,
            "loss": [done.before, done.after],
        }
