"""CIFAR-10 after fine-tuning on labels, after distillation without labels, and a twin network.

The paper's schedule: SGD for 60 epochs, batches of 128, momentum 0.9, weight decay 5e-4, learning
rates 5e-3, 2.5e-3 after 20 epochs, and 1e-3 after 40. The twin has the same architecture and is
trained from another initialization, in another order of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

import interpress
from benchmarks.experiment import Job, Report, Row, Settings
from benchmarks.networks import NETWORKS
from benchmarks.subjects import Subject, load_subject, network_names
from benchmarks.tables import network_title, table
from benchmarks.training import Recipe, distillation, random_crops, train
from interpress import Method, demo

ABOUT = "CIFAR-10: after fine-tuning, after distillation without labels; an independent twin"
MAGNITUDE = "l1, no correction"
STARTS: dict[str, str | Method] = {
    "preserve": "preserve",
    "iterative-id": "iterative-id",
    MAGNITUDE: Method(selection="l1", allocation="constant", refit=False, correct=False),
}
"""The methods that make the networks to fine-tune."""
TEACHING_TITLES = {"labels": "labels", "none": "distillation"}
PAPER = {  # agreement and accuracy, from its table for VGG-16 and its text for MobileNetV1
    ("vgg16", "iterative-id"): (97.29, 93.31), ("vgg16", MAGNITUDE): (93.15, 93.56),
    ("vgg16", "twin"): (93.02, 93.60),
    ("mobilenetv1", "iterative-id"): (92.6, 89.4), ("mobilenetv1", "twin"): (88.6, 88.9),
}  # fmt: skip


def paper_recipe(epochs: int) -> Recipe:
    """Return the paper's fine-tuning, scaled to this many epochs."""

    def learning_rate(epoch: int) -> float:
        return (5e-3, 2.5e-3, 1e-3)[min(2, 3 * epoch // epochs)]

    return Recipe(epochs, learning_rate, momentum=0.9, weight_decay=5e-4, bfloat16=True)


def scratch_recipe(epochs: int) -> Recipe:
    """Return a training from scratch; the learning rate rises and falls linearly."""

    def learning_rate(epoch: int) -> float:
        return 0.1 * max(0.01, min((epoch + 1) / (0.2 * epochs), 1.25 * (1 - epoch / epochs)))

    return Recipe(epochs, learning_rate, momentum=0.9, weight_decay=5e-4, bfloat16=True, seed=1)


def augmentation(subject: Subject) -> Callable[[Tensor], Tensor] | None:
    """Return the augmentation of the training images; digits have none."""
    return None if subject.name == "digits" else random_crops


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield one job per network and way of training."""
    for name in network_names(settings):
        for start in STARTS:
            yield Job(f"{name}/{start}/labels", partial(_run, settings, name, start, "labels"))
        yield Job(f"{name}/preserve/no labels", partial(_run, settings, name, "preserve", "none"))
        yield Job(f"{name}/twin", partial(_twin, settings, name))


def _run(settings: Settings, name: str, start: str, teaching: str) -> list[Row]:
    subject = load_subject(settings, name)
    calibration, testing = subject.split(0)
    smaller = interpress.compress(
        subject.model,
        calibration,
        flops=0.5,
        method=STARTS[start],
        exclude=() if start == "preserve" else subject.residual_streams,
        progress=False,
    ).model.to(settings.device)
    for parameter in smaller.parameters():
        parameter.requires_grad_(True)
    rows: list[Row] = []

    def add_row(epoch: int) -> None:
        row = {"network": name, "start": start, "teaching": teaching, "epoch": epoch}
        rows.append(row | subject.score(smaller, testing))

    add_row(0)
    recipe = replace(paper_recipe(settings.choose(60, 3)), augment=augmentation(subject))
    if teaching == "none":
        recipe = replace(recipe, objective=distillation(subject.model))
    train(
        smaller,
        subject.train,
        recipe,
        settings=settings,
        label=f"{name}, {start}, {TEACHING_TITLES[teaching]}",
        on_epoch=lambda epoch: add_row(epoch + 1),
    )
    return rows


def _twin(settings: Settings, name: str) -> list[Row]:
    subject = load_subject(settings, name)
    _, testing = subject.split(0)
    torch.manual_seed(1)
    twin = (demo.DigitNet() if name == "digits" else NETWORKS[name]()).to(settings.device)
    recipe = replace(scratch_recipe(settings.choose(60, 6)), augment=augmentation(subject))
    train(twin, subject.train, recipe, settings=settings, label=f"{name}, twin")
    row = {"network": name, "start": "twin", "teaching": "labels", "epoch": recipe.epochs}
    return [row | subject.score(twin, testing)]


def tables(report: Report) -> str:
    """Return agreement and accuracy before and after training."""
    lines = []
    for network in report.distinct("network"):
        for start, teaching in dict.fromkeys(
            (row["start"], row["teaching"]) for row in report.where(network=network)
        ):
            rows = report.where(network=network, start=start, teaching=teaching)
            best = max(rows, key=lambda row: row["agreement"])
            published = PAPER.get((network, start)) if teaching == "labels" else None
            lines.append([
                network_title(network), start_title(start), TEACHING_TITLES[teaching],
                _both_percentages(rows[0]) if rows[0]["epoch"] == 0 else "",
                _both_percentages(rows[-1]), f"{best['agreement']:.1f} ({best['epoch']})",
                "" if published is None else f"{published[0]:.1f} / {published[1]:.1f}",
            ])  # fmt: skip
    header = ["network", "start", "trained on", "before", "after", "best agreement (epoch)",
              "paper, after"]  # fmt: skip
    return "Agreement / accuracy in percent\n\n" + table(header, lines, text_columns=3)


def start_title(start: str) -> str:
    """Return a start's name as tables show it."""
    return "l1 without correction" if start == MAGNITUDE else start


def _both_percentages(row: Row) -> str:
    return f"{row['agreement']:.1f} / {row['accuracy']:.1f}"


def draw(report: Report, folder: Path) -> None:
    """Plot agreement by epoch."""
    from benchmarks.plots import COLOURS, figure, legend_below

    networks = report.distinct("network")
    with figure(folder / "finetune.svg", len(networks)) as axes:
        for axis, network in zip(axes, networks, strict=True):
            for colour, start in zip(COLOURS, STARTS, strict=False):
                for teaching, style in (("labels", "-"), ("none", "--")):
                    rows = report.where(network=network, start=start, teaching=teaching)
                    label = start_title(start) + (", distillation" if teaching == "none" else "")
                    if rows:
                        points = [(row["epoch"], row["agreement"]) for row in rows]
                        axis.plot(*zip(*points, strict=True), style, color=colour, label=label)
            for row in report.where(network=network, start="twin"):
                axis.axhline(row["agreement"], color=COLOURS[5], ls=":", label="twin")
            axis.set_title(network_title(network))
            axis.set_xlabel("epoch")
            axis.set_ylim(85, 100)
            axis.set_ylabel("agreement, %")
        legend_below(axes[0])
