"""CIFAR-10: one class is missing from calibration. What happens to it at half of the FLOPs?

ID (and `preserve`) see images of nine classes, no labels, and are done. Magnitude pruning (of
VGG-16) is fine-tuned on the training images of the same nine classes, by the paper's schedule. On
ResNet-56 the paper's method shrinks block interiors only.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from torch import nn

import interpress
from benchmarks.data.cifar import Images
from benchmarks.experiment import Job, Report, Row, Setting
from benchmarks.experiments.finetune import STARTS, augmentation, schedule
from benchmarks.subjects import Subject, names, subject
from benchmarks.tables import spread, table
from benchmarks.training import train

ABOUT = "CIFAR-10: a class removed from calibration, its accuracy with ID and with fine-tuning"
METHODS = ("iterative-id", "preserve")
CLASSES = range(10)
TUNED = (3, 8)  # cat, ship: the hardest class and an easy one
NETWORKS = ("vgg16", "mobilenetv1", "resnet56")


def jobs(setting: Setting) -> Iterator[Job]:
    """One per removed class and method."""
    for place, name in enumerate(names(setting, NETWORKS)):
        for removed in (8,) if setting.quick else CLASSES:
            for method in METHODS:
                work = partial(_preserved, setting, name, removed, method)
                yield Job(f"{name}/{method}/{removed}", work)
        for removed in () if place else TUNED[1:] if setting.quick else TUNED:
            yield Job(f"{name}/l1/{removed}", partial(_tuned, setting, name, removed))


def _preserved(setting: Setting, name: str, removed: int, method: str) -> list[Row]:
    one = subject(setting, name)
    rows = []
    for seed in setting.draws(3):
        calibration, judging = one.split_without(seed, removed)
        result = interpress.compress(
            one.model, calibration, flops=0.5, method=method, seed=seed, progress=False,
            exclude=() if method == "preserve" else one.streams,
        )  # fmt: skip
        about = {"network": name, "method": method, "removed": removed, "seed": seed, "epoch": 0}
        rows.append(about | _by_class(one, result.model, judging))
    return rows


def _tuned(setting: Setting, name: str, removed: int) -> list[Row]:
    one = subject(setting, name)
    calibration, judging = one.split_without(0, removed)
    smaller = interpress.compress(
        one.model, calibration, flops=0.5, progress=False, **STARTS["l1, no correction"]
    ).model.to(setting.device)
    rows: list[Row] = []

    def note(epoch: int) -> None:
        about = {"network": name, "method": "l1 + fine-tuning", "removed": removed, "seed": 0}
        rows.append(about | {"epoch": epoch} | _by_class(one, smaller, judging))

    note(0)
    kept = one.train.labels != removed
    train(
        smaller, one.train.images[kept], one.train.labels[kept], schedule(setting.count(60, 3)),
        augment=augmentation(one), setting=setting, label=f"{name} without class {removed}",
        each_epoch=lambda epoch: note(epoch + 1),
    )  # fmt: skip
    return rows


def _by_class(one: Subject, smaller: nn.Module, judging: Images) -> Row:
    found = one.compared(smaller, judging)
    return {
        "agreement": 100 * float(found),
        "by_class": [
            [100 * (row.accuracy_before or 0), 100 * (row.accuracy_after or 0)]
            for row in found.per_class
        ],
    }


def losses(row: Row) -> tuple[float, float]:
    """Points of accuracy that the removed class lost, and the others on average."""
    lost = [first - second for first, second in row["by_class"]]
    others = [value for label, value in enumerate(lost) if label != row["removed"]]
    return lost[row["removed"]], sum(others) / len(others)


def tables(report: Report) -> str:
    """Points lost by the removed class and by the others."""
    parts = []
    header = ["points of accuracy lost by", "the removed class", "the others", "gap", "agreement"]
    for network in dict.fromkeys(row["network"] for row in report.all):
        lines = []
        for method, removed in sorted(
            {(row["method"], row["removed"]) for row in report.where(network=network)}
        ):
            found = at_the_end(report, network, method, removed)
            own, others = zip(*map(losses, found), strict=True)
            gap = [a - b for a, b in zip(own, others, strict=True)]
            last = found[0]["epoch"]
            label = f"{method}, class {removed}" + (f", {last} epochs" if last else "")
            agreement = spread([row["agreement"] for row in found])
            lines.append([label, spread(own), spread(others), spread(gap), agreement])
        parts.append(f"**{network}**\n\n" + table(header, lines))
    return "\n".join(parts)


def at_the_end(report: Report, network: str, method: str, removed: int) -> list[Row]:
    """The rows of one network, method and class after the last epoch."""
    rows = report.where(network=network, method=method, removed=removed)
    last = max(row["epoch"] for row in rows)
    return [row for row in rows if row["epoch"] == last]


def draw(report: Report, folder: Path) -> None:
    """Accuracy by class before, with ID, and while fine-tuning without a class."""
    from benchmarks.plots import COLOURS, figure, legend_below

    tuned = [row for row in report.all if row["method"].startswith("l1")]
    network, removed = tuned[0]["network"], tuned[0]["removed"]
    with figure(folder / "removed.svg", 2) as (left, right):
        labels = torch.arange(len(tuned[0]["by_class"])).tolist()
        for place, method in enumerate(METHODS):
            rows = report.where(network=network, method=method, removed=removed)
            after = [sum(r["by_class"][c][1] for r in rows) / len(rows) for c in labels]
            shift = [c + 0.27 * (place + 1) for c in labels]
            left.bar(shift, after, 0.27, color=COLOURS[place], label=method)
        before = [pair[0] for pair in tuned[0]["by_class"]]
        left.bar(labels, before, 0.27, color="0.7", label="original")
        left.set_xlabel(f"class; {removed} was not in the calibration set")
        legend_below(left)
        own = [row for row in tuned if row["removed"] == removed]
        epochs = [row["epoch"] for row in own]
        for label in labels:
            mine = label == removed
            right.plot(epochs, [r["by_class"][label][1] for r in own], zorder=2 if mine else 1,
                       color=COLOURS[1] if mine else "0.7",
                       label="removed class" if mine else None)  # fmt: skip
        right.set_xlabel("epochs on nine classes, after magnitude pruning")
        legend_below(right)
        for axis in (left, right):
            axis.set_ylabel("accuracy, %")
