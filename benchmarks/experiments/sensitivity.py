"""CIFAR-10: the influence of the step of Iterative ID and of the size of the calibration set."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import interpress
from benchmarks.experiment import Job, Report, Row, Settings
from benchmarks.subjects import load_subject, network_names
from benchmarks.tables import mean_with_interval, network_title, table
from interpress import Method

ABOUT = "CIFAR-10: step of iterative-id, size of the calibration set"
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
SIZES = (250, 500, 1000, 2000, 4000)
METHODS = ("iterative-id", "preserve")


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield one job per network, seed and question."""
    for name in network_names(settings):
        for seed in settings.seed_range(3):
            yield Job(f"steps/{name}/{seed}", partial(_steps, settings, name, seed))
            yield Job(f"sizes/{name}/{seed}", partial(_sizes, settings, name, seed))


def _steps(settings: Settings, name: str, seed: int) -> list[Row]:
    subject = load_subject(settings, name)
    calibration, testing = subject.split(seed)
    analysis = subject.analyze(calibration, seed=seed, interiors=True, patches=False)
    rows: list[Row] = []
    for asked in (0.5,) if settings.quick else (0.5, 0.3):
        for step in settings.track(STEPS[2:4] if settings.quick else STEPS, f"{name}, steps"):
            method = Method.named("iterative-id", step=step)
            result = analysis.compress(flops=asked, method=method, progress=False)
            row = {"what": "step", "network": name, "seed": seed, "asked": asked, "step": step}
            rows.append(row | subject.score(result.model, testing))
    return rows


def _sizes(settings: Settings, name: str, seed: int) -> list[Row]:
    subject = load_subject(settings, name)
    sizes = (150, 300) if name == "digits" else (125, 600) if settings.quick else SIZES
    calibration, testing = subject.split(seed, sizes[-1])
    rows: list[Row] = []
    for size in settings.track(sizes, f"{name}, sizes"):
        for method in METHODS:
            row = {"what": "size", "network": name, "seed": seed, "size": size, "method": method}
            started = time.perf_counter()
            try:
                result = interpress.compress(
                    subject.model, calibration[:size], flops=0.5, method=method, seed=seed,
                    exclude=() if method == "preserve" else subject.residual_streams,
                    progress=False,
                )  # fmt: skip
            except interpress.InterpressError as problem:
                rows.append(row | {"failed": str(problem)})
                continue
            row["seconds"] = time.perf_counter() - started
            rows.append(row | subject.score(result.model, testing))
    return rows


def tables(report: Report) -> str:
    """Return one table of steps and one of calibration set sizes."""
    return _steps_table(report) + "\n" + _sizes_table(report)


def _steps_table(report: Report) -> str:
    steps = sorted(report.distinct("step"))
    lines = []
    for network in report.distinct("network", what="step"):
        for asked in report.distinct("asked", what="step"):
            cells = []
            for step in steps:
                rows = report.where(what="step", network=network, asked=asked, step=step)
                cells.append(mean_with_interval([row["agreement"] for row in rows]))
            lines.append([network_title(network), f"{asked:g}", *cells])
    caption = "**Step** of `iterative-id`: agreement in percent"
    header = ["network", "FLOPs kept, fraction", *(f"step {step:g}" for step in steps)]
    return f"{caption}\n\n" + table(header, lines)


def _sizes_table(report: Report) -> str:
    sizes = sorted(report.distinct("size"))
    lines = []
    for network in report.distinct("network", what="size"):
        for method in METHODS:
            cells = []
            for size in sizes:
                rows = report.where(what="size", network=network, size=size, method=method)
                cells.append(_size_cell(rows))
            lines.append([network_title(network), method, *cells])
    caption = "**Size of the calibration set**: agreement in percent at half of the FLOPs"
    header = ["network", "method", *(f"{size} images" for size in sizes)]
    return f"{caption}\n\n" + table(header, lines, text_columns=2)


def _size_cell(rows: list[Row]) -> str:
    """Return the mean of the runs that succeeded, and how many did if not all."""
    agreements = [row["agreement"] for row in rows if "agreement" in row]
    if not agreements:
        return "too few" if rows else ""
    partial_count = f" ({len(agreements)} of {len(rows)})" if len(agreements) < len(rows) else ""
    return mean_with_interval(agreements) + partial_count


def draw(report: Report, folder: Path) -> None:
    """Plot agreement by step and by size."""
    from benchmarks.plots import COLOURS, figure, legend_below

    with figure(folder / "sensitivity.svg", 2) as (left, right):
        for colour, network in zip(COLOURS, report.distinct("network"), strict=False):
            title = network_title(network)
            for asked, style in ((0.5, "-"), (0.3, "--")):
                rows = report.where(what="step", network=network, asked=asked)
                left.plot(*_means(rows, "step"), style, color=colour, marker="o", ms=3,
                          label=f"{title}, {asked:g} of the FLOPs")  # fmt: skip
            for method, style in zip(METHODS, (":", "-"), strict=True):
                rows = report.where(what="size", network=network, method=method)
                right.plot(*_means(rows, "size"), style, color=colour, marker="o", ms=3,
                           label=f"{title}, {method}")  # fmt: skip
        left.set_xlabel("step of iterative-id (fraction of a layer)")
        right.set_xlabel("calibration images")
        for axis, ticks in ((left, STEPS), (right, SIZES)):
            axis.set_xscale("log")
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
            axis.minorticks_off()
            axis.set_ylabel("agreement, %")
            legend_below(axis)


def _means(rows: list[Row], key: str) -> tuple[list[float], list[float]]:
    """Return the values of a key, sorted, and the mean agreement at each."""
    agreements: dict[float, list[float]] = {}
    for row in rows:
        if "agreement" in row:
            agreements.setdefault(row[key], []).append(row["agreement"])
    values = sorted(agreements)
    return values, [sum(agreements[value]) / len(agreements[value]) for value in values]
