"""CIFAR-10 at half of the FLOPs, before any training: ours, the paper's, baselines, Torch-Pruning.

Baselines go through the same surgery, budget (a constant fraction of every layer) and judgement:
without any correction, with batch norms recalibrated, with the interpolation `T`, and with `T` and
the refit. Two of them also get the widths that `preserve` would give them: what is left of the
margin then is that of its order. On ResNet-56 they and the paper's methods shrink block interiors
only; so do one row of `preserve` and one of each of Torch-Pruning's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn

import interpress
from benchmarks import peers
from benchmarks.experiment import Job, Report, Row, Setting
from benchmarks.subjects import Subject, each_network_and_seed, subject
from benchmarks.tables import half_width, spread, table

ABOUT = "CIFAR-10 at half of the FLOPs: baselines with and without correction, Torch-Pruning"
BASELINES = ("random", "l1", "l2", "soft", "fpgm", "bn-scale", "thinet", "hrank", "pfp")
CORRECTIONS: dict[str, dict[str, Any]] = {
    "none": {"correct": False, "refit": False},
    "T": {"refit": False},
    "T + refit": {"refit": True},
}
COLUMNS = ("none", "batch norm", "T", "T + refit")
ALLOCATED = ("l2", "fpgm")
KEEP = 0.5


def jobs(setting: Setting) -> Iterator[Job]:
    """One per network and seed."""
    return each_network_and_seed(setting, _one)


def _one(setting: Setting, name: str, seed: int) -> list[Row]:
    one = subject(setting, name)
    calibration, judging = one.split(seed)
    rows: list[Row] = []

    def add(method: str, correction: str, smaller: Any) -> None:
        about = {"network": name, "seed": seed, "method": method, "correction": correction}
        rows.append(about | one.judged(smaller, judging))

    whole = interpress.analyze(one.model, calibration, seed=seed, progress=False)
    add("preserve", "T + refit", whole.compress(flops=KEEP, progress=False).model)
    inner = whole
    if one.streams:
        inner = interpress.analyze(
            one.model, calibration, seed=seed, exclude=one.streams, progress=False
        )
        smaller = inner.compress(flops=KEEP, progress=False).model
        add("preserve, interiors only", "T + refit", smaller)
    for method in ("iterative-id", "constant-id"):
        add(method, "T", inner.compress(flops=KEEP, method=method, progress=False).model)
    for selection in setting.track(BASELINES, f"{name}, seed {seed}"):
        for label, parts in CORRECTIONS.items():
            result = inner.compress(
                flops=KEEP, selection=selection, allocation="constant", progress=False, **parts
            )
            add(selection, label, result.model)
            if label == "none":
                add(selection, "batch norm", peers.recalibrated(result.model, calibration))
    for selection in ALLOCATED:  # how much of our lead is the allocation's
        result = inner.compress(
            flops=KEEP, selection=selection, allocation="measured", refit=True, progress=False
        )
        add(f"{selection}, our widths", "T + refit", result.model)
    if peers.available():
        _peers(one, calibration, add)
    return rows


def _peers(one: Subject, calibration: Any, add: Any) -> None:
    example = calibration[:2].to(next(one.model.parameters()).device)
    for importance in peers.IMPORTANCES:
        smaller = peers.torch_pruning(one.model, example, importance, KEEP)
        add(f"Torch-Pruning {importance}", "none", smaller)
        again = peers.recalibrated(smaller, calibration)
        add(f"Torch-Pruning {importance}", "batch norm", again)
        if one.streams:
            ignored = [
                name for name, module in one.model.named_modules() if _on_stream(name, module)
            ]
            smaller = peers.torch_pruning(one.model, example, importance, KEEP, ignored)
            add(f"Torch-Pruning {importance}, interiors only", "none", smaller)
            again = peers.recalibrated(smaller, calibration)
            add(f"Torch-Pruning {importance}, interiors only", "batch norm", again)


def _on_stream(name: str, module: nn.Module) -> bool:
    """Whether a convolution of ResNet-56 writes into a residual stream."""
    inside = name.endswith(".conv1")
    return isinstance(module, nn.Conv2d) and not inside


def tables(report: Report) -> str:
    """Agreement by method and correction, one table for every network; then the margins."""
    parts = []
    for network in dict.fromkeys(row["network"] for row in report.all):
        rows = report.where(network=network)
        corrections = list(dict.fromkeys(["none", *(row["correction"] for row in rows)]))
        corrections.sort(key=COLUMNS.index)
        lines = []
        for method in dict.fromkeys(row["method"] for row in rows):
            cells = [
                spread([r["agreement"] for r in rows
                        if (r["method"], r["correction"]) == (method, correction)], 2)
                for correction in corrections
            ]  # fmt: skip
            lines.append([method, *cells])
        parts.append(f"**{network}**, agreement\n\n" + table(["method", *corrections], lines))
    return "\n".join([*parts, margins(report)])


def margins(report: Report) -> str:
    """By how much `preserve` is ahead of each other row, seed by seed, with 95 % intervals."""
    lines = []
    for network in dict.fromkeys(row["network"] for row in report.all):
        ours = {r["seed"]: r["agreement"] for r in report.where(network=network, method="preserve")}
        for label, wanted in _rivals(report, network).items():
            ahead = [ours[row["seed"]] - row["agreement"] for row in wanted]
            mean = sum(ahead) / len(ahead)
            width = half_width(ahead)
            won = "yes" if len(ahead) > 1 and mean - width > 0 else "no"
            lines.append([network, label, spread(ahead, 2), won])
    header = ["network", "ahead of the best", "points", "interval above 0"]
    return "Margins of `preserve`\n\n" + table(header, lines)


def _rivals(report: Report, network: str) -> dict[str, list[Row]]:
    """The best of every kind, by its mean."""
    rows = report.where(network=network)
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        if row["method"].startswith("preserve"):
            continue
        kinds.setdefault(_kind(row), []).append(row)
    return {
        f"{kind}: {best}": [row for row in rows if row["method"] == best]
        for kind, rows in kinds.items()
        for best in [best_of(rows)]
    }


def _kind(row: Row) -> str:
    if row["method"].endswith("-id"):
        return "of the paper"
    if row["method"].endswith(", our widths"):
        return "of ours with another order"
    peer = row["method"].startswith("Torch-Pruning")
    return f"{'of Torch-Pruning' if peer else 'baseline'} ({row['correction']})"


def best_of(rows: list[Row]) -> str:
    """The method with the highest mean."""
    means: dict[str, list[float]] = {}
    for row in rows:
        means.setdefault(row["method"], []).append(row["agreement"])
    return max(means, key=lambda method: sum(means[method]) / len(means[method]))


def draw(report: Report, folder: Path) -> None:
    """What the correction buys, method by method."""
    from benchmarks.plots import COLOURS, figure, legend_below

    networks = list(dict.fromkeys(row["network"] for row in report.all))
    with figure(folder / "baselines.svg", len(networks)) as axes:
        for axis, network in zip(axes, networks, strict=True):
            for place, correction in enumerate(COLUMNS):
                values = []
                for method in BASELINES:
                    rows = report.where(network=network, method=method, correction=correction)
                    values.append(sum(r["agreement"] for r in rows) / max(len(rows), 1))
                axis.plot(BASELINES, values, "o-", color=COLOURS[place], label=correction)
            ours = [r["agreement"] for r in report.where(network=network, method="preserve")]
            axis.axhline(sum(ours) / len(ours), color=COLOURS[5], ls="--", label="preserve")
            axis.set_title(network)
            axis.tick_params(axis="x", rotation=60)
            axis.set_ylabel("agreement, %")
        legend_below(axes[0], 0.45)
