"""CIFAR-10: how much the step size of Iterative ID and the size of the calibration set matter."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import interpress
from benchmarks.experiment import Job, Report, Row, Setting
from benchmarks.subjects import names, subject
from benchmarks.tables import spread, table

ABOUT = "CIFAR-10: step size of iterative-id, size of the calibration set"
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
SIZES = (250, 500, 1000, 2000, 4000)
METHODS = ("iterative-id", "preserve")


def jobs(setting: Setting) -> Iterator[Job]:
    """One per network and seed and question."""
    for name in names(setting):
        for seed in setting.draws(3):
            yield Job(f"steps/{name}/{seed}", partial(_steps, setting, name, seed))
            yield Job(f"sizes/{name}/{seed}", partial(_sizes, setting, name, seed))


def _steps(setting: Setting, name: str, seed: int) -> list[Row]:
    one = subject(setting, name)
    calibration, judging = one.split(seed)
    analysis = interpress.analyze(
        one.model, calibration, seed=seed, exclude=one.streams, patches=False, progress=False
    )
    rows: list[Row] = []
    for asked in (0.5,) if setting.quick else (0.5, 0.3):
        for step in setting.track(STEPS[2:4] if setting.quick else STEPS, f"{name}, steps"):
            result = analysis.compress(
                flops=asked, method="iterative-id", step=step, progress=False
            )
            about = {"what": "step", "network": name, "seed": seed, "asked": asked, "step": step}
            rows.append(about | one.judged(result.model, judging))
    return rows


def _sizes(setting: Setting, name: str, seed: int) -> list[Row]:
    one = subject(setting, name)
    sizes = (150, 300) if name == "digits" else (125, 600) if setting.quick else SIZES
    calibration, judging = one.split(seed, sizes[-1])
    rows: list[Row] = []
    for size in setting.track(sizes, f"{name}, sizes"):
        for method in METHODS:
            about = {"what": "size", "network": name, "seed": seed, "size": size, "method": method}
            started = time.perf_counter()
            try:
                result = interpress.compress(
                    one.model, calibration[:size], flops=0.5, method=method, seed=seed,
                    exclude=() if method == "preserve" else one.streams, progress=False,
                )  # fmt: skip
            except interpress.InterpressError as problem:
                rows.append(about | {"failed": str(problem)})
                continue
            about["seconds"] = time.perf_counter() - started
            rows.append(about | one.judged(result.model, judging))
    return rows


def tables(report: Report) -> str:
    """One table for steps, one for sizes."""
    steps = report.where(what="step")
    columns = sorted({row["step"] for row in steps})
    lines = []
    for network in dict.fromkeys(row["network"] for row in steps):
        for asked in dict.fromkeys(row["asked"] for row in steps):
            cells = [
                spread([r["agreement"] for r in steps
                        if (r["network"], r["asked"], r["step"]) == (network, asked, step)])
                for step in columns
            ]  # fmt: skip
            lines.append([f"{network}, {asked:g} of the FLOPs", *cells])
    first = table(["agreement, iterative-id, step", *map(str, columns)], lines)
    sizes = report.where(what="size")
    columns = sorted({row["size"] for row in sizes})
    lines = []
    for network in dict.fromkeys(row["network"] for row in sizes):
        for method in METHODS:
            cells = []
            for size in columns:
                own = report.where(what="size", network=network, size=size, method=method)
                good = [r["agreement"] for r in own if "agreement" in r]
                some = f" ({len(good)} of {len(own)})" if len(good) < len(own) else ""
                cells.append(spread(good) + some if good else "too few" if own else "")
            lines.append([f"{network}, {method}", *cells])
    header = ["agreement at 0.5 of the FLOPs, images", *map(str, columns)]
    return first + "\n" + table(header, lines)


def draw(report: Report, folder: Path) -> None:
    """Agreement by step and by size."""
    from benchmarks.plots import COLOURS, figure, legend_below

    with figure(folder / "sensitivity.svg", 2) as (left, right):
        networks = dict.fromkeys(row["network"] for row in report.all)
        for place, network in enumerate(networks):
            for asked, style in ((0.5, "-"), (0.3, "--")):
                rows = report.where(what="step", network=network, asked=asked)
                left.plot(*_means(rows, "step"), style, color=COLOURS[place], marker="o", ms=3,
                          label=f"{network}, {asked:g}")  # fmt: skip
            for method, style in zip(METHODS, (":", "-"), strict=True):
                rows = report.where(what="size", network=network, method=method)
                right.plot(*_means(rows, "size"), style, color=COLOURS[place], marker="o", ms=3,
                           label=f"{network}, {method}")  # fmt: skip
        left.set_xlabel("step of iterative-id")
        right.set_xlabel("calibration images")
        for axis, ticks in ((left, STEPS), (right, SIZES)):
            axis.set_xscale("log")
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
            axis.minorticks_off()
            axis.set_ylabel("agreement, %")
            legend_below(axis)


def _means(rows: list[Row], key: str) -> tuple[list[float], list[float]]:
    found: dict[float, list[float]] = {}
    for row in rows:
        if "agreement" in row:
            found.setdefault(row[key], []).append(row["agreement"])
    places = sorted(found)
    return places, [sum(found[place]) / len(found[place]) for place in places]
