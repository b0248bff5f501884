"""Agreement of the named methods, of single parts of a method, and of every kind of budget."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import interpress
from benchmarks.experiment import Row
from benchmarks.preserve.task import Task, score, show_progress
from benchmarks.subjects import RESIDUAL_STREAMS
from interpress import METHODS, Method

PARTS = {
    "pivoting, constant": Method.named("constant-id"),
    "pivoting, iterative": Method.named("iterative-id"),
    "weights, marginal": Method(selection="weights", allocation="marginal", refit=False),
    "patches, marginal": Method(selection="patches", allocation="marginal", refit=False),
    "patches, measured": Method(refit=False),
    "pivoting, iterative + refit": Method.named("iterative-id", refit=True),
    "weights, marginal + refit": Method(selection="weights", allocation="marginal"),
    "patches, marginal + refit": Method(allocation="marginal"),
    "patches, measured + refit": Method(),
}
"""Methods that differ in one part at a time: selection, allocation, refit."""

BUDGETS: list[dict[str, Any]] = [
    {"flops": 0.5}, {"flops": 0.3}, {"params": 0.5}, {"latency": 0.8}, {"agreement": 0.98},
    {"error": 0.2}, {"width": 0.7},
]  # fmt: skip


def agreement(task: Task) -> Iterator[Row]:
    """Measure the named methods, calibrated on test images and on training images."""
    runs = [(n, s, c) for n in task.networks for s in task.seeds for c in task.options.calibration]
    for name, seed, source in show_progress(runs, "agreement"):
        calibration, testing = task.split(seed, source)
        model = task.network(name)
        requests = [("preserve", budget) for budget in task.budgets]
        if source == "test":
            paper_methods = [method for method in METHODS if method != "preserve"]
            requests += [(method, task.budgets[0]) for method in paper_methods]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", interpress.MemorizedWarning)
            everything = interpress.analyze(model, calibration, seed=seed)
            interiors = everything
            if name in RESIDUAL_STREAMS and source == "test":
                interiors = interpress.analyze(
                    model, calibration, seed=seed, patches=False, exclude=RESIDUAL_STREAMS[name]
                )
            for method, budget in requests:
                analysis = everything if method == "preserve" else interiors
                row = score(model, analysis.compress(flops=budget, method=method), testing)
                row["warned"] = bool(caught)
                about = {"network": name, "seed": seed, "calibration": source}
                yield {**about, "method": method, "asked": budget, **row}


def parts(task: Task) -> Iterator[Row]:
    """Measure methods that differ in one part."""
    runs = [(n, s) for n in task.networks for s in task.seeds]
    for name, seed in show_progress(runs, "parts"):
        calibration, testing = task.split(seed)
        model = task.network(name)
        analysis = interpress.analyze(model, calibration, seed=seed)
        for label, method in PARTS.items():
            for budget in task.budgets:
                row = score(model, analysis.compress(flops=budget, method=method), testing)
                about = {"network": name, "seed": seed, "method": label, "asked": budget}
                yield {**about, **row}


def budgets(task: Task) -> Iterator[Row]:
    """Measure what every kind of budget results in."""
    for name in task.networks:
        calibration, testing = task.split(0)
        model = task.network(name)
        analysis = interpress.analyze(model, calibration)
        for budget in show_progress(BUDGETS, name):
            result = analysis.compress(**budget)
            ((kind, value),) = budget.items()
            about = {"network": name, "budget": kind, "asked": value, "params": result.params}
            yield {**about, "latency": result.latency, **score(model, result, testing)}
