"""CIFAR-10: agreement and accuracy against FLOPs for every method, before any training."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import interpress
from benchmarks import peers
from benchmarks.experiment import Job, Report, Row, Setting
from benchmarks.experiments.baselines import BASELINES
from benchmarks.subjects import names, subject
from benchmarks.tables import table

ABOUT = "CIFAR-10: agreement and accuracy against FLOPs, all methods, before any training"
BUDGETS = (0.85, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
OWN = ("preserve", "iterative-id", "constant-id")
PEERS = ("L1", "group L2, global")


def jobs(setting: Setting) -> Iterator[Job]:
    """One per network."""
    for name in names(setting):
        yield Job(name, partial(_one, setting, name))


def _one(setting: Setting, name: str) -> list[Row]:
    one = subject(setting, name)
    calibration, judging = one.split(0)
    budgets = (0.5,) if setting.quick else BUDGETS
    whole = interpress.analyze(one.model, calibration, progress=False)
    inner = whole
    if one.streams:
        inner = interpress.analyze(one.model, calibration, exclude=one.streams, progress=False)
    rows: list[Row] = []

    def add(method: str, asked: float, smaller: Any) -> None:
        about = {"network": name, "method": method, "asked": asked}
        rows.append(about | one.judged(smaller, judging))

    for asked in setting.track(budgets, name):
        for method in OWN:
            analysis = whole if method == "preserve" else inner
            try:
                result = analysis.compress(flops=asked, method=method, progress=False)
            except interpress.DataError as problem:  # more channels kept than rows seen
                rows.append({"network": name, "method": method, "asked": asked,
                             "failed": str(problem)})  # fmt: skip
                continue
            add(method, asked, result.model)
        for selection in BASELINES:
            result = inner.compress(
                flops=asked, selection=selection, allocation="constant", refit=False,
                correct=False, progress=False,
            )  # fmt: skip
            add(selection, asked, peers.recalibrated(result.model, calibration))
        if peers.available():
            example = calibration[:2].to(next(one.model.parameters()).device)
            for importance in PEERS:
                smaller = peers.torch_pruning(one.model, example, importance, asked)
                again = peers.recalibrated(smaller, calibration)
                add(f"Torch-Pruning {importance} + batch norm", asked, again)
    return rows


def tables(report: Report) -> str:
    """Agreement / accuracy by FLOPs left."""
    parts = []
    for network in dict.fromkeys(row["network"] for row in report.all):
        rows = report.where(network=network)
        budgets = sorted({row["asked"] for row in rows}, reverse=True)
        lines = []
        for method in dict.fromkeys(row["method"] for row in rows):
            own = {row["asked"]: row for row in rows if row["method"] == method}
            cells = [_both(own[budget]) for budget in budgets]
            lines.append([method, *cells])
        header = ["agreement / accuracy at", *(f"{budget:g}" for budget in budgets)]
        title = f"**{network}**, original accuracy {rows[-1]['original']:.1f}\n\n"
        parts.append(title + table(header, lines))
    return "\n".join(parts)


def _both(row: Row) -> str:
    return "too few" if "failed" in row else f"{row['agreement']:.1f} / {row['accuracy']:.1f}"


def draw(report: Report, folder: Path) -> None:
    """Two rows of curves: agreement, and accuracy."""
    from benchmarks.plots import COLOURS, figure, legend_below

    networks = list(dict.fromkeys(row["network"] for row in report.all))
    for kind in ("agreement", "accuracy"):
        with figure(folder / f"curves-{kind}.svg", len(networks)) as axes:
            for axis, network in zip(axes, networks, strict=True):
                rows = report.where(network=network)
                for method in dict.fromkeys(row["method"] for row in rows):
                    own = sorted(
                        (r["flops"], r[kind]) for r in rows if r["method"] == method and kind in r
                    )
                    axis.plot(*zip(*own, strict=True), **_style(method, COLOURS))
                axis.set_title(network)
                axis.set_xlabel("FLOPs left")
                axis.set_ylabel(f"{kind}, %")
            legend_below(axes[-1])


def _style(method: str, colours: tuple[str, ...]) -> dict[str, Any]:
    if method in OWN:
        return {"color": colours[OWN.index(method)], "label": method, "linewidth": 2}
    if method.startswith("Torch-Pruning"):
        return {"color": colours[3], "ls": ":" if "global" in method else "--", "label": method}
    label = "baselines + batch norm" if method == BASELINES[0] else None
    return {"color": "0.75", "linewidth": 0.8, "label": label, "zorder": 0}
