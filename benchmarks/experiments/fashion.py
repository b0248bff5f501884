"""Fashion-MNIST, fully connected: ID, magnitude, and training from scratch, as in the paper.

One and two hidden layers, trained for 50 epochs (SGD, rate 0.3, times 0.9 every epoch), halved, and
fine-tuned for 10 epochs; five seeds. Also the singular values of the activations beside the two
errors that ID can be steered by, and how far independently trained networks agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import interpress
from benchmarks.data.fashion import Pictures, load_pictures
from benchmarks.experiment import Job, Report, Row, Setting
from benchmarks.tables import in_mean, number, table
from benchmarks.training import Schedule, accuracy, predicted, train
from interpress.linalg import column_ordering

ABOUT = "Fashion-MNIST: ID, magnitude and from scratch; singular values; independent networks"
WIDTHS = {1: (32, 64, 128, 256, 512, 1024, 2048, 4096), 2: (32, 64, 128, 256, 512, 1024, 2048)}
TWINS = (500, 2000, 4000)
PAPER_TWINS = {500: (94.6, 94.0, 93.3), 2000: (96.7, 94.7, 94.5), 4000: (97.3, 95.4, 95.1)}
KINDS = ("same start", "same order", "neither")
METHODS: dict[str, dict[str, Any]] = {
    "ID": {"selection": "pivoting"},
    "magnitude": {"selection": "l2", "correct": False},
}


def network(inputs: int, width: int, layers: int) -> nn.Sequential:
    """Fully connected, ReLU."""
    found: list[nn.Module] = []
    for _ in range(layers):
        found += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*found, nn.Linear(inputs, 10))


def _training(setting: Setting) -> Schedule:
    return Schedule(setting.count(50, 8), lambda epoch: 0.3 * 0.9**epoch)


def _tuning(setting: Setting, layers: int, width: int, method: str) -> Schedule:
    """The paper's rates; large networks pruned with ID need next to none."""
    first, factor = (0.2, 0.7) if layers == 1 else (0.1, 0.6)
    if method == "ID" and width > 512:
        first = 0.002
    return Schedule(setting.count(10, 2), lambda epoch: first * factor**epoch)


def jobs(setting: Setting) -> Iterator[Job]:
    """One per width and seed."""
    for layers, widths in WIDTHS.items():
        for width in (32, 64) if setting.quick else (16, *widths):
            for seed in setting.draws(5):
                work = partial(_one, setting, layers, width, seed)
                yield Job(f"{layers}/{width}/{seed}", work)
    yield Job("spectrum", partial(_spectrum, setting))
    for width in (50,) if setting.quick else TWINS:
        for trial in setting.draws(3):
            yield Job(f"twins/{width}/{trial}", partial(_twins, setting, width, trial))


def trained(
    setting: Setting, pictures: Pictures, width: int, layers: int, seed: int, order: int
) -> nn.Sequential:
    """A network from a start and an order of the data, each with a seed."""
    torch.manual_seed(seed)
    model = network(pictures.train.images.shape[1], width, layers).to(setting.device)
    train(
        model, *pictures.train, _training(setting), seed=seed, order_seed=order, setting=setting,
        label=f"{layers} x {width}, seed {seed}",
    )  # fmt: skip
    return model


def _calibration(setting: Setting, pictures: Pictures) -> Tensor:
    return pictures.train.images[: setting.count(10_000, 600)].to(setting.device)


def _one(setting: Setting, layers: int, width: int, seed: int) -> list[Row]:
    pictures = load_pictures(setting)
    model = trained(setting, pictures, width, layers, seed, seed)
    about: Row = {"data": pictures.name, "layers": layers, "seed": seed}
    rows = [about | {"method": "scratch", "width": width, "after": accuracy(model, *pictures.test)}]
    if width == 16:  # only there to be compared with
        return rows
    calibration = _calibration(setting, pictures)
    analysis = interpress.analyze(model, calibration, patches=False, seed=seed, progress=False)
    for method, parts in METHODS.items():
        result = analysis.compress(width=0.5, method="constant-id", progress=False, **parts)
        smaller = result.model
        half = width // 2
        before = accuracy(smaller, *pictures.test)
        agree = 100 * float((predicted(smaller, pictures.test.images)
                             == predicted(model, pictures.test.images)).float().mean())  # fmt: skip
        train(smaller, *pictures.train, _tuning(setting, layers, half, method), seed=seed)
        rows.append(about | {
            "method": method, "width": half, "before": before, "agreement": agree,
            "after": accuracy(smaller, *pictures.test),
        })  # fmt: skip
    return rows


def _spectrum(setting: Setting) -> list[Row]:
    """Singular values, ||R22|| and |r_kk / r_11| of one hidden layer, and accuracy at every k."""
    pictures = load_pictures(setting)
    width = setting.count(4096, 64)
    model = trained(setting, pictures, width, 1, 0, 0)
    calibration = _calibration(setting, pictures)
    with torch.no_grad():
        Z = model[:2](calibration)
    ordering = column_ordering(Z)
    values = ordering.singular_values.cpu()
    analysis = interpress.analyze(model, calibration, patches=False, progress=False)
    first = (pictures.train.images[:10_000], pictures.train.labels[:10_000])
    rows = []
    ks = sorted({max(1, round(width * 2 ** (-place / 2))) for place in range(1, 17)})
    for k in setting.track(ks, "ranks"):
        result = analysis.compress(width=k / width, method="constant-id", progress=False)
        rows.append({
            "data": pictures.name, "method": "spectrum", "k": k, "of": width,
            "sigma": float(values[k] / values[0]) if k < len(values) else 0.0,
            "R22": ordering.spectral_tail(k) / ordering.spectral_norm,
            "proxy": float(ordering.proxy_errors[k]),
            "accuracy": accuracy(result.model, *pictures.test),
            "train": accuracy(result.model, *first),
            "original": accuracy(model, *pictures.test),
        })  # fmt: skip
    return rows


def _twins(setting: Setting, width: int, trial: int) -> list[Row]:
    """Agreement of networks that share their start, the order of their data, or neither."""
    pictures = load_pictures(setting)
    a, b = 100 + 2 * trial, 101 + 2 * trial
    found = {}
    accuracies = []
    for start in (a, b):
        for order in (a, b):
            model = trained(setting, pictures, width, 1, start, order)
            found[start, order] = predicted(model, pictures.test.images)
            accuracies.append(accuracy(model, *pictures.test))
    pairs = {
        "same start": [((a, a), (a, b)), ((b, a), (b, b))],
        "same order": [((a, a), (b, a)), ((a, b), (b, b))],
        "neither": [((a, a), (b, b)), ((a, b), (b, a))],
    }
    return [
        {"data": pictures.name, "method": "twins", "width": width, "trial": trial, "kind": kind,
         "agreement": 100 * float((found[one] == found[other]).float().mean()),
         "accuracy": sum(accuracies) / len(accuracies)}
        for kind, both in pairs.items() for one, other in both
    ]  # fmt: skip


def tables(report: Report) -> str:
    """Three tables."""
    parts = []
    for layers in (1, 2):
        lines = []
        rows = report.where(layers=layers)
        for width in sorted({row["width"] for row in rows if row["method"] == "ID"}):
            cells: list[str] = []
            for method in METHODS:
                own = [r for r in rows if (r["method"], r["width"]) == (method, width)]
                cells += [
                    in_mean([r[key] for r in own]) for key in ("agreement", "before", "after")
                ]
            scratch = [r["after"] for r in rows
                       if (r["method"], r["width"]) == ("scratch", width)]  # fmt: skip
            lines.append([f"{2 * width} to {width}", *cells, in_mean(scratch)])
        header = [f"{layers} hidden layer{'s' if layers > 1 else ''}", "ID: agreement",
                  "accuracy", "after 10 epochs", "magnitude: agreement", "accuracy",
                  "after 10 epochs", "from scratch"]  # fmt: skip
        parts.append(table(header, lines))
    lines = [
        [row["k"], number(row["sigma"]), number(row["R22"]), number(row["proxy"]),
         f"{row['accuracy']:.2f}", f"{row['train']:.2f}"]
        for row in report.where(method="spectrum")
    ]  # fmt: skip
    header = ["k", "sigma_k+1 / sigma_1", "norm of R22 / norm of R", "r_k+1 / r_1",
              "test accuracy", "training accuracy"]  # fmt: skip
    parts.append(table(header, lines))
    lines = []
    for width in dict.fromkeys(row["width"] for row in report.where(method="twins")):
        own = report.where(method="twins", width=width)
        cells = [in_mean([r["agreement"] for r in own if r["kind"] == kind]) for kind in KINDS]
        printed = " / ".join(map(str, PAPER_TWINS[width])) if width in PAPER_TWINS else ""
        lines.append([width, *cells, f"{own[0]['accuracy']:.2f}", printed])
    parts.append(table(["width", *KINDS, "accuracy", "paper"], lines))
    return "\n".join(parts)


def draw(report: Report, folder: Path) -> None:
    """Accuracy by width, and the three errors by k."""
    from benchmarks.plots import COLOURS, figure, legend_below

    with figure(folder / "fashion.svg", 2) as axes:
        for axis, layers in zip(axes, (1, 2), strict=True):
            rows = report.where(layers=layers)
            lines = [("ID", "before", ":"), ("ID", "after", "-"), ("magnitude", "before", ":"),
                     ("magnitude", "after", "-"), ("scratch", "after", "--")]  # fmt: skip
            for method, when, style in lines:
                colour = COLOURS[("ID", "magnitude", "scratch").index(method)]
                own = [r for r in rows if r["method"] == method]
                widths = sorted({r["width"] for r in own})
                values = [[r[when] for r in own if r["width"] == width] for width in widths]
                means = [sum(v) / len(v) for v in values]
                errors = [float(torch.tensor(v).std()) / len(v) ** 0.5 if len(v) > 1 else 0
                          for v in values]  # fmt: skip
                axis.errorbar(widths, means, errors, fmt=style, color=colour,
                              label=f"{method}, {when} fine-tuning" if method != "scratch"
                              else "from scratch")  # fmt: skip
            axis.set_xscale("log", base=2)
            axis.set_title(f"{layers} hidden layer{'s' if layers > 1 else ''}")
            axis.set_xlabel("neurons per layer")
            axis.set_ylabel("test accuracy, %")
        legend_below(axes[0])
    rows = report.where(method="spectrum")
    with figure(folder / "fashion-spectrum.svg", 2) as (left, right):
        ks = [row["k"] for row in rows]
        for place, (key, label) in enumerate(
            (("sigma", "singular value"), ("R22", "norm of R22"), ("proxy", "r_kk / r_11"))
        ):
            left.loglog(
                ks, [row[key] for row in rows], "o-", ms=3, color=COLOURS[place], label=label
            )
        right.semilogx(ks, [row["accuracy"] for row in rows], "o-", ms=3, color=COLOURS[0])
        right.axhline(rows[0]["original"], color="0.5", ls="--", label="all neurons")
        for axis in (left, right):
            axis.set_xlabel(f"k of {rows[0]['of']} neurons")
            legend_below(axis)
        right.set_ylabel("test accuracy, %")
