"""CIFAR-10 after training on: labels (the paper's schedule), distillation without, and a twin.

The paper's schedule: SGD, 60 epochs, batches of 128, momentum 0.9, weight decay 5e-4, rates 5e-3,
2.5e-3 after 20 epochs, 1e-3 after 40. The twin is the same architecture, trained from another start
in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import interpress
from benchmarks.experiment import Job, Report, Row, Setting
from benchmarks.networks import NETWORKS
from benchmarks.subjects import Subject, names, subject
from benchmarks.tables import table
from benchmarks.training import Schedule, distilled, labelled, shifted, train
from interpress import demo

ABOUT = "CIFAR-10: after fine-tuning, after distillation without labels; an independent twin"
STARTS: dict[str, dict[str, Any]] = {
    "preserve": {},
    "iterative-id": {"method": "iterative-id"},
    "l1, no correction": {
        "selection": "l1", "allocation": "constant", "refit": False, "correct": False,
    },
}  # fmt: skip
PAPER = {  # agreement and accuracy, from its table for VGG-16 and its text for MobileNetV1
    ("vgg16", "iterative-id"): (97.29, 93.31), ("vgg16", "l1, no correction"): (93.15, 93.56),
    ("vgg16", "twin"): (93.02, 93.60),
    ("mobilenetv1", "iterative-id"): (92.6, 89.4), ("mobilenetv1", "twin"): (88.6, 88.9),
}  # fmt: skip


def schedule(epochs: int) -> Schedule:
    """The paper's, scaled to so many epochs."""

    def rate(epoch: int) -> float:
        return (5e-3, 2.5e-3, 1e-3)[min(2, 3 * epoch // epochs)]

    return Schedule(epochs, rate, momentum=0.9, decay=5e-4, half=True)


def from_scratch(epochs: int) -> Schedule:
    """For a twin: up and down again."""

    def rate(epoch: int) -> float:
        return 0.1 * max(0.01, min((epoch + 1) / (0.2 * epochs), 1.25 * (1 - epoch / epochs)))

    return Schedule(epochs, rate, momentum=0.9, decay=5e-4, half=True)


def jobs(setting: Setting) -> Iterator[Job]:
    """One per network and way to go on."""
    for name in names(setting):
        for start in STARTS:
            yield Job(f"{name}/{start}/labels", partial(_one, setting, name, start, "labels"))
        yield Job(f"{name}/preserve/no labels", partial(_one, setting, name, "preserve", "none"))
        yield Job(f"{name}/twin", partial(_twin, setting, name))


def augmentation(one: Subject) -> Any:
    """Crops and mirrors for photographs; digits are left as they are."""
    return None if one.name == "digits" else shifted


def _one(setting: Setting, name: str, start: str, teaching: str) -> list[Row]:
    one = subject(setting, name)
    calibration, judging = one.split(0)
    inner = one.streams if start != "preserve" else ()
    result = interpress.compress(
        one.model, calibration, flops=0.5, exclude=inner, progress=False, **STARTS[start]
    )
    rows: list[Row] = []

    def note(epoch: int) -> None:
        about = {"network": name, "start": start, "teaching": teaching, "epoch": epoch}
        rows.append(about | one.judged(smaller, judging))

    smaller = result.model.to(setting.device)
    for parameter in smaller.parameters():
        parameter.requires_grad_(True)
    note(0)
    train(
        smaller, *one.train, schedule(setting.count(60, 3)),
        objective=labelled if teaching == "labels" else distilled(one.model),
        augment=augmentation(one), setting=setting, label=f"{name}, {start}, {teaching}",
        each_epoch=lambda epoch: note(epoch + 1),
    )  # fmt: skip
    return rows


def _twin(setting: Setting, name: str) -> list[Row]:
    import torch

    one = subject(setting, name)
    _, judging = one.split(0)
    torch.manual_seed(1)
    twin = (demo.DigitNet() if name == "digits" else NETWORKS[name]()).to(setting.device)
    epochs = setting.count(60, 6)
    train(
        twin, *one.train, from_scratch(epochs), augment=augmentation(one), seed=1, setting=setting,
        label=f"{name}, twin",
    )  # fmt: skip
    about = {"network": name, "start": "twin", "teaching": "labels", "epoch": epochs}
    return [about | one.judged(twin, judging)]


def tables(report: Report) -> str:
    """Before, after a few epochs, after all."""
    lines = []
    for network in dict.fromkeys(row["network"] for row in report.all):
        for start, teaching in dict.fromkeys(
            (row["start"], row["teaching"]) for row in report.where(network=network)
        ):
            rows = report.where(network=network, start=start, teaching=teaching)
            first, last = rows[0], rows[-1]
            best = max(rows, key=lambda row: row["agreement"])
            before = _both(first) if first["epoch"] == 0 else ""
            printed = PAPER.get((network, start)) if teaching == "labels" else None
            lines.append([
                f"{network}, {start}", {"labels": "labels", "none": "distillation"}[teaching],
                before, _both(last), f"{best['agreement']:.1f} ({best['epoch']})",
                "" if printed is None else f"{printed[0]:.1f} / {printed[1]:.1f}",
            ])  # fmt: skip
    header = ["agreement / accuracy", "by", "before", "after", "best agreement (epoch)", "paper"]
    return table(header, lines)


def _both(row: Row) -> str:
    return f"{row['agreement']:.1f} / {row['accuracy']:.1f}"


def draw(report: Report, folder: Path) -> None:
    """Agreement while training."""
    from benchmarks.plots import COLOURS, figure, legend_below

    networks = list(dict.fromkeys(row["network"] for row in report.all))
    with figure(folder / "finetune.svg", len(networks)) as axes:
        for axis, network in zip(axes, networks, strict=True):
            for place, start in enumerate(STARTS):
                for teaching, style in (("labels", "-"), ("none", "--")):
                    rows = report.where(network=network, start=start, teaching=teaching)
                    label = start + (", distilled" if teaching == "none" else "")
                    if rows:
                        points = [(r["epoch"], r["agreement"]) for r in rows]
                        axis.plot(
                            *zip(*points, strict=True), style, color=COLOURS[place], label=label
                        )
            for row in report.where(network=network, start="twin"):
                axis.axhline(row["agreement"], color=COLOURS[5], ls=":", label="twin")
            axis.set_title(network)
            axis.set_xlabel("epoch")
            axis.set_ylim(85, 100)
            axis.set_ylabel("agreement, %")
        legend_below(axes[0])
