"""CIFAR-10: the accuracy of a class that has no calibration image, at half of the FLOPs.

ID and `preserve` are calibrated with unlabelled images of the nine other classes. Magnitude pruning
(VGG-16 only) is fine-tuned on the training images of those nine classes with the paper's schedule.
On ResNet-56 the paper's method shrinks only the interiors of residual blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

import interpress
from benchmarks.data.cifar import Images
from benchmarks.experiment import Job, Report, Row, Settings
from benchmarks.experiments.finetune import MAGNITUDE, STARTS, augmentation, paper_recipe
from benchmarks.subjects import Subject, load_subject, network_names
from benchmarks.tables import mean_with_interval, network_title, table
from benchmarks.training import train

ABOUT = "CIFAR-10: accuracy of a class without calibration images, for ID and fine-tuning"
METHODS = ("iterative-id", "preserve")
FINE_TUNED = "l1 + fine-tuning"
CLASSES = range(10)
FINE_TUNED_CLASSES = (3, 8)  # cat, ship: the hardest class and an easy one
NETWORKS = ("vgg16", "mobilenetv1", "resnet56")


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield one job per network, removed class and method."""
    for place, name in enumerate(network_names(settings, NETWORKS)):
        for removed in (8,) if settings.quick else CLASSES:
            for method in METHODS:
                work = partial(_compress, settings, name, removed, method)
                yield Job(f"{name}/{method}/{removed}", work)
        if place == 0:
            for removed in FINE_TUNED_CLASSES[1:] if settings.quick else FINE_TUNED_CLASSES:
                yield Job(f"{name}/l1/{removed}", partial(_fine_tune, settings, name, removed))


def _compress(settings: Settings, name: str, removed: int, method: str) -> list[Row]:
    subject = load_subject(settings, name)
    rows = []
    for seed in settings.seed_range(3):
        calibration, testing = subject.split_without_class(seed, removed)
        result = interpress.compress(
            subject.model, calibration, flops=0.5, method=method, seed=seed, progress=False,
            exclude=() if method == "preserve" else subject.residual_streams,
        )  # fmt: skip
        row = {"network": name, "method": method, "removed": removed, "seed": seed, "epoch": 0}
        rows.append(row | _score_by_class(subject, result.model, testing))
    return rows


def _fine_tune(settings: Settings, name: str, removed: int) -> list[Row]:
    subject = load_subject(settings, name)
    calibration, testing = subject.split_without_class(0, removed)
    smaller = interpress.compress(
        subject.model, calibration, flops=0.5, method=STARTS[MAGNITUDE], progress=False
    ).model.to(settings.device)
    rows: list[Row] = []

    def add_row(epoch: int) -> None:
        row = {"network": name, "method": FINE_TUNED, "removed": removed, "seed": 0}
        rows.append(row | {"epoch": epoch} | _score_by_class(subject, smaller, testing))

    add_row(0)
    train(
        smaller,
        subject.train.take(subject.train.labels != removed),
        replace(paper_recipe(settings.choose(60, 3)), augment=augmentation(subject)),
        settings=settings,
        label=f"{name} without class {removed}",
        on_epoch=lambda epoch: add_row(epoch + 1),
    )
    return rows


def _score_by_class(subject: Subject, smaller: nn.Module, testing: Images) -> Row:
    comparison = subject.compare(smaller, testing)
    return {
        "agreement": 100 * float(comparison),
        "by_class": [
            [100 * (row.accuracy_before or 0), 100 * (row.accuracy_after or 0)]
            for row in comparison.per_class
        ],
    }


def accuracy_losses(row: Row) -> tuple[float, float]:
    """Return the points of accuracy lost by the removed class, and by the others on average."""
    losses = [before - after for before, after in row["by_class"]]
    others = [loss for label, loss in enumerate(losses) if label != row["removed"]]
    return losses[row["removed"]], sum(others) / len(others)


def gaps(report: Report, network: str, method: str, removed: int) -> list[float]:
    """Return how many points more the removed class loses than the others, per seed."""
    rows = last_epoch(report, network, method, removed)
    return [removed_loss - other_loss for removed_loss, other_loss in map(accuracy_losses, rows)]


def last_epoch(report: Report, network: str, method: str, removed: int) -> list[Row]:
    """Return the rows of one network, method and class after the last epoch."""
    rows = report.where(network=network, method=method, removed=removed)
    last = max(row["epoch"] for row in rows)
    return [row for row in rows if row["epoch"] == last]


def tables(report: Report) -> str:
    """Return the accuracy lost by the removed class and by the others, one table per network."""
    header = ["method", "removed class", "lost by the removed class", "lost by the other classes",
              "difference", "agreement, %"]  # fmt: skip
    parts = []
    for network in report.distinct("network"):
        lines = []
        for method, removed in sorted(
            {(row["method"], row["removed"]) for row in report.where(network=network)}
        ):
            rows = last_epoch(report, network, method, removed)
            removed_loss, other_loss = zip(*map(accuracy_losses, rows), strict=True)
            epochs = rows[0]["epoch"]
            lines.append([
                f"{method}, {epochs} epochs" if epochs else method, removed,
                mean_with_interval(removed_loss), mean_with_interval(other_loss),
                mean_with_interval(gaps(report, network, method, removed)),
                mean_with_interval([row["agreement"] for row in rows]),
            ])  # fmt: skip
        caption = f"**{network_title(network)}**: points of accuracy lost, by class"
        parts.append(f"{caption}\n\n" + table(header, lines))
    return "\n".join(parts)


def draw(report: Report, folder: Path) -> None:
    """Plot accuracy by class with ID, and while fine-tuning without one class."""
    from benchmarks.plots import figure, legend_below

    fine_tuned = report.where(method=FINE_TUNED)
    removed = fine_tuned[0]["removed"]
    with figure(folder / "removed.svg", 2) as (left, right):
        _draw_classes(left, report, fine_tuned[0])
        _draw_epochs(right, [row for row in fine_tuned if row["removed"] == removed])
        for axis in (left, right):
            axis.set_ylabel("accuracy, %")
            legend_below(axis)


def _draw_classes(axis: Any, report: Report, first: Row) -> None:
    from benchmarks.plots import COLOURS

    network, removed = first["network"], first["removed"]
    classes = range(len(first["by_class"]))
    bar = 0.27
    for place, method in enumerate(METHODS):
        rows = report.where(network=network, method=method, removed=removed)
        after = [sum(row["by_class"][label][1] for row in rows) / len(rows) for label in classes]
        shifted = [label + bar * (place + 1) for label in classes]
        axis.bar(shifted, after, bar, color=COLOURS[place], label=method)
    before = [pair[0] for pair in first["by_class"]]
    axis.bar(list(classes), before, bar, color="0.7", label="original")
    axis.set_xlabel(f"class; {removed} has no calibration image")


def _draw_epochs(axis: Any, rows: list[Row]) -> None:
    from benchmarks.plots import COLOURS

    epochs = [row["epoch"] for row in rows]
    for label in range(len(rows[0]["by_class"])):
        removed = label == rows[0]["removed"]
        title = "removed class" if removed else "other classes" if label == 0 else None
        axis.plot(epochs, [row["by_class"][label][1] for row in rows], zorder=2 if removed else 1,
                  color=COLOURS[1] if removed else "0.7", label=title)  # fmt: skip
    axis.set_xlabel("epochs of fine-tuning on the other classes")
