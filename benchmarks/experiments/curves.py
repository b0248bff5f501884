"""CIFAR-10: agreement and accuracy by FLOPs for every method, before any training."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

import interpress
from benchmarks import peers
from benchmarks.experiment import Job, Report, Row, Settings
from benchmarks.experiments.baselines import BASELINES
from benchmarks.subjects import load_subject, network_names
from benchmarks.tables import network_title, table
from interpress import Method

ABOUT = "CIFAR-10: agreement and accuracy by FLOPs, all methods, before any training"
BUDGETS = (0.85, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
NAMED_METHODS = ("preserve", "iterative-id", "constant-id")
IMPORTANCES = ("L1", "group L2, global")
_RECALIBRATED = " + batch norm"  # suffix of Torch-Pruning's rows in the result file


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield one job per network."""
    for name in network_names(settings):
        yield Job(name, partial(_run, settings, name))


def _run(settings: Settings, name: str) -> list[Row]:
    subject = load_subject(settings, name)
    calibration, testing = subject.split(0)
    everything = subject.analyze(calibration)
    interiors = everything
    if subject.residual_streams:
        interiors = subject.analyze(calibration, interiors=True)
    rows: list[Row] = []

    def add(method: str, asked: float, smaller: nn.Module) -> None:
        row = {"network": name, "method": method, "asked": asked}
        rows.append(row | subject.score(smaller, testing))

    for asked in settings.track((0.5,) if settings.quick else BUDGETS, name):
        for method in NAMED_METHODS:
            analysis = everything if method == "preserve" else interiors
            try:
                result = analysis.compress(flops=asked, method=method, progress=False)
            except interpress.DataError as problem:  # too few rows for the channels that are kept
                rows.append({"network": name, "method": method, "asked": asked,
                             "failed": str(problem)})  # fmt: skip
                continue
            add(method, asked, result.model)
        for selection in BASELINES:
            plain = Method(selection=selection, allocation="constant", refit=False, correct=False)
            result = interiors.compress(flops=asked, method=plain, progress=False)
            add(selection, asked, peers.recalibrate_batch_norms(result.model, calibration))
        if peers.available():
            example = calibration[:2].to(subject.device)
            for importance in IMPORTANCES:
                smaller = peers.torch_pruning(subject.model, example, importance, asked)
                recalibrated = peers.recalibrate_batch_norms(smaller, calibration)
                add(f"Torch-Pruning {importance}{_RECALIBRATED}", asked, recalibrated)
    return rows


def tables(report: Report) -> str:
    """Return agreement and accuracy by FLOPs, one table per network."""
    parts = []
    for network in report.distinct("network"):
        budgets = sorted(report.distinct("asked", network=network), reverse=True)
        lines = []
        for method in report.distinct("method", network=network):
            rows = {row["asked"]: row for row in report.where(network=network, method=method)}
            title = method.removesuffix(_RECALIBRATED)
            lines.append([title, *(_both_percentages(rows[budget]) for budget in budgets)])
        original = report.where(network=network)[-1]["original"]
        caption = (
            f"**{network_title(network)}** (accuracy of the original: {original:.1f} %): "
            "agreement / accuracy in percent, by fraction of the FLOPs kept"
        )
        header = ["method", *(f"{budget:g}" for budget in budgets)]
        parts.append(f"{caption}\n\n" + table(header, lines))
    return "\n".join(parts)


def _both_percentages(row: Row) -> str:
    return "too few" if "failed" in row else f"{row['agreement']:.1f} / {row['accuracy']:.1f}"


def draw(report: Report, folder: Path) -> None:
    """Plot one file of agreement curves and one of accuracy curves."""
    from benchmarks.plots import COLOURS, figure, legend_below

    networks = report.distinct("network")
    for kind in ("agreement", "accuracy"):
        with figure(folder / f"curves-{kind}.svg", len(networks)) as axes:
            for axis, network in zip(axes, networks, strict=True):
                for method in report.distinct("method", network=network):
                    points = sorted(
                        (row["flops"], row[kind])
                        for row in report.where(network=network, method=method)
                        if kind in row
                    )
                    axis.plot(*zip(*points, strict=True), **_style(method, COLOURS))
                axis.set_title(network_title(network))
                axis.set_xlabel("fraction of the FLOPs kept")
                axis.set_ylabel(f"{kind}, %")
            legend_below(axes[-1])


def _style(method: str, colours: tuple[str, ...]) -> dict[str, Any]:
    if method in NAMED_METHODS:
        return {"color": colours[NAMED_METHODS.index(method)], "label": method, "linewidth": 2}
    if method.startswith("Torch-Pruning"):
        title = method.removesuffix(_RECALIBRATED)
        return {"color": colours[3], "ls": ":" if "global" in method else "--", "label": title}
    label = "baselines" if method == BASELINES[0] else None  # one legend entry for all of them
    return {"color": "0.75", "linewidth": 0.8, "label": label, "zorder": 0}
