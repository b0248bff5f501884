"""Fashion-MNIST with fully connected networks: ID, magnitude pruning, and training from scratch.

As in the paper, networks with one and two hidden layers are trained for 50 epochs (SGD, learning
rate 0.3, times 0.9 every epoch), halved, and fine-tuned for 10 epochs, with five seeds. Two more
parts compare the singular values of the activations with the two error estimates of ID, and measure
how far independently trained networks agree.
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
from benchmarks.experiment import Job, Report, Row, Settings
from benchmarks.tables import mean_with_standard_error, significant, table
from benchmarks.training import Recipe, accuracy, predict, train
from interpress import Method
from interpress.linalg import column_ordering

ABOUT = "Fashion-MNIST: ID, magnitude pruning, from scratch; singular values; independent networks"
WIDTHS = {1: (32, 64, 128, 256, 512, 1024, 2048, 4096), 2: (32, 64, 128, 256, 512, 1024, 2048)}
SCRATCH_ONLY_WIDTH = 16  # the smallest halved network needs one trained from scratch to compare
TWIN_WIDTHS = (500, 2000, 4000)
PAPER_TWINS = {500: (94.6, 94.0, 93.3), 2000: (96.7, 94.7, 94.5), 4000: (97.3, 95.4, 95.1)}
PAIR_TITLES = {
    "same start": "same initialisation",
    "same order": "same data order",
    "neither": "neither",
}
"""Per kind of pair in the result file, its column heading."""
METHODS = {
    "ID": Method.named("constant-id"),
    "magnitude": Method.named("constant-id", selection="l2", correct=False),
}


def network(inputs: int, width: int, layers: int) -> nn.Sequential:
    """Return an untrained network with ReLU and ten outputs."""
    modules: list[nn.Module] = []
    for _ in range(layers):
        modules += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*modules, nn.Linear(inputs, 10))


def _fine_tuning(settings: Settings, layers: int, width: int, method: str, seed: int) -> Recipe:
    """Return the paper's fine-tuning: wide networks halved by ID get a very small learning rate."""
    first, factor = (0.2, 0.7) if layers == 1 else (0.1, 0.6)
    if method == "ID" and width > 512:
        first = 0.002
    return Recipe(settings.choose(10, 2), lambda epoch: first * factor**epoch, seed=seed)


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield one job per depth, width and seed, one for the spectrum, and the twins."""
    for layers, widths in WIDTHS.items():
        for width in (32, 64) if settings.quick else (SCRATCH_ONLY_WIDTH, *widths):
            for seed in settings.seed_range(5):
                work = partial(_halve, settings, layers, width, seed)
                yield Job(f"{layers}/{width}/{seed}", work)
    yield Job("spectrum", partial(_spectrum, settings))
    for width in (50,) if settings.quick else TWIN_WIDTHS:
        for trial in settings.seed_range(3):
            yield Job(f"twins/{width}/{trial}", partial(_twins, settings, width, trial))


def trained(
    settings: Settings,
    pictures: Pictures,
    width: int,
    layers: int = 1,
    seed: int = 0,
    order_seed: int | None = None,
) -> nn.Sequential:
    """Return a trained network; `order_seed` draws the order of the data, `seed` the rest."""
    torch.manual_seed(seed)
    model = network(pictures.train.images.shape[1], width, layers).to(settings.device)
    recipe = Recipe(
        settings.choose(50, 8), lambda epoch: 0.3 * 0.9**epoch, seed=seed, order_seed=order_seed
    )
    label = f"{layers} x {width}, seed {seed}"
    train(model, pictures.train, recipe, settings=settings, label=label)
    return model


def _calibration(settings: Settings, pictures: Pictures) -> Tensor:
    return pictures.train.images[: settings.choose(10_000, 600)].to(settings.device)


def _agreement(first: Tensor, second: Tensor) -> float:
    """Return the percentage of equal predictions."""
    return 100 * float((first == second).float().mean())


def _halve(settings: Settings, layers: int, width: int, seed: int) -> list[Row]:
    pictures = load_pictures(settings)
    model = trained(settings, pictures, width, layers, seed)
    about: Row = {"data": pictures.name, "layers": layers, "seed": seed}
    scratch = {"method": "scratch", "width": width, "after": accuracy(model, pictures.test)}
    rows = [about | scratch]
    if width == SCRATCH_ONLY_WIDTH:
        return rows
    calibration = _calibration(settings, pictures)
    analysis = interpress.analyze(model, calibration, patches=False, seed=seed, progress=False)
    half = width // 2
    for name, method in METHODS.items():
        smaller = analysis.compress(width=0.5, method=method, progress=False).model
        before = accuracy(smaller, pictures.test)
        agreement = _agreement(
            predict(smaller, pictures.test.images), predict(model, pictures.test.images)
        )
        train(smaller, pictures.train, _fine_tuning(settings, layers, half, name, seed))
        rows.append(about | {
            "method": name, "width": half, "before": before, "agreement": agreement,
            "after": accuracy(smaller, pictures.test),
        })  # fmt: skip
    return rows


def _spectrum(settings: Settings) -> list[Row]:
    """Return singular values, ||R22||, |r_kk / r_11| and accuracy of one hidden layer by k."""
    pictures = load_pictures(settings)
    width = settings.choose(4096, 64)
    model = trained(settings, pictures, width)
    calibration = _calibration(settings, pictures)
    with torch.no_grad():
        Z = model[:2](calibration)
    ordering = column_ordering(Z)
    singular_values = ordering.singular_values.cpu()
    analysis = interpress.analyze(model, calibration, patches=False, progress=False)
    train_sample = pictures.train.take(torch.arange(min(10_000, len(pictures.train.images))))
    rows = []
    ks = sorted({max(1, round(width * 2 ** (-place / 2))) for place in range(1, 17)})
    for k in settings.track(ks, "ranks"):
        smaller = analysis.compress(width=k / width, method="constant-id", progress=False).model
        in_range = k < len(singular_values)
        rows.append({
            "data": pictures.name, "method": "spectrum", "k": k, "of": width,
            "sigma": float(singular_values[k] / singular_values[0]) if in_range else 0.0,
            "R22": ordering.spectral_tail(k) / ordering.spectral_norm,
            "proxy": float(ordering.proxy_errors[k]),
            "accuracy": accuracy(smaller, pictures.test),
            "train": accuracy(smaller, train_sample),
            "original": accuracy(model, pictures.test),
        })  # fmt: skip
    return rows


def _twins(settings: Settings, width: int, trial: int) -> list[Row]:
    """Return agreements of networks that share initialization, data order, or neither."""
    pictures = load_pictures(settings)
    a, b = 100 + 2 * trial, 101 + 2 * trial
    predictions = {}
    accuracies = []
    for seed in (a, b):
        for order_seed in (a, b):
            model = trained(settings, pictures, width, 1, seed, order_seed)
            predictions[seed, order_seed] = predict(model, pictures.test.images)
            accuracies.append(accuracy(model, pictures.test))
    pairs = {
        "same start": [((a, a), (a, b)), ((b, a), (b, b))],
        "same order": [((a, a), (b, a)), ((a, b), (b, b))],
        "neither": [((a, a), (b, b)), ((a, b), (b, a))],
    }
    return [
        {"data": pictures.name, "method": "twins", "width": width, "trial": trial, "kind": kind,
         "agreement": _agreement(predictions[one], predictions[other]),
         "accuracy": sum(accuracies) / len(accuracies)}
        for kind, both in pairs.items() for one, other in both
    ]  # fmt: skip


def tables(report: Report) -> str:
    """Return the halved networks by depth, the spectrum, and the independent networks."""
    halved = [_halved_table(report, layers) for layers in (1, 2)]
    return "\n".join([*halved, _spectrum_table(report), _twins_table(report)])


def _depth(layers: int) -> str:
    return "One hidden layer" if layers == 1 else "Two hidden layers"


def _halved_table(report: Report, layers: int) -> str:
    lines = []
    for width in sorted(report.distinct("width", layers=layers, method="ID")):
        cells: list[str] = []
        for method in METHODS:
            rows = report.where(layers=layers, method=method, width=width)
            cells += [
                mean_with_standard_error([row[key] for row in rows])
                for key in ("agreement", "before", "after")
            ]
        scratch = report.where(layers=layers, method="scratch", width=width)
        from_scratch = mean_with_standard_error([row["after"] for row in scratch])
        lines.append([f"{2 * width} to {width}", *cells, from_scratch])
    columns = [
        f"{method}: {column}"
        for method in METHODS
        for column in ("agreement", "accuracy", "after fine-tuning")
    ]
    caption = (
        f"**{_depth(layers)}**, halved: agreement and test accuracy in percent, before fine-tuning "
        "unless the column says otherwise"
    )
    return f"{caption}\n\n" + table(["neurons", *columns, "from scratch: accuracy"], lines)


def _spectrum_table(report: Report) -> str:
    rows = report.where(method="spectrum")
    lines = [
        [row["k"], significant(row["sigma"]), significant(row["R22"]), significant(row["proxy"]),
         f"{row['accuracy']:.2f}", f"{row['train']:.2f}"]
        for row in rows
    ]  # fmt: skip
    caption = (
        f"**Error estimates** of the hidden layer of {rows[0]['of']} neurons with k kept, relative "
        "to the whole layer, and accuracy in percent"
    )
    header = ["k", "sigma_k+1 / sigma_1", "norm of R22 / norm of R", "r_k+1 / r_1",
              "test accuracy", "training accuracy"]  # fmt: skip
    return f"{caption}\n\n" + table(header, lines)


def _twins_table(report: Report) -> str:
    lines = []
    for width in report.distinct("width", method="twins"):
        cells = [
            mean_with_standard_error(
                [r["agreement"] for r in report.where(method="twins", width=width, kind=kind)]
            )
            for kind in PAIR_TITLES
        ]
        first = report.where(method="twins", width=width)[0]
        published = " / ".join(map(str, PAPER_TWINS[width])) if width in PAPER_TWINS else ""
        lines.append([width, *cells, f"{first['accuracy']:.2f}", published])
    caption = "**Independent networks**: agreement of pairs, and test accuracy, in percent"
    header = ["neurons", *PAIR_TITLES.values(), "accuracy", "agreements in the paper"]
    return f"{caption}\n\n" + table(header, lines)


def draw(report: Report, folder: Path) -> None:
    """Plot accuracy by width, and the error estimates and accuracy by k."""
    from benchmarks.plots import COLOURS, figure, legend_below

    with figure(folder / "fashion.svg", 2) as axes:
        for axis, layers in zip(axes, (1, 2), strict=True):
            _draw_accuracies(axis, report, layers)
        legend_below(axes[0])
    rows = report.where(method="spectrum")
    estimates = {"sigma": "singular value", "R22": "norm of R22", "proxy": "r_kk / r_11"}
    with figure(folder / "fashion-spectrum.svg", 2) as (left, right):
        ks = [row["k"] for row in rows]
        for colour, (key, label) in zip(COLOURS, estimates.items(), strict=False):
            left.loglog(ks, [row[key] for row in rows], "o-", ms=3, color=colour, label=label)
        right.semilogx(
            ks, [row["accuracy"] for row in rows], "o-", ms=3, color=COLOURS[0], label="k neurons"
        )
        right.axhline(rows[0]["original"], color="0.5", ls="--", label="all neurons")
        for axis in (left, right):
            axis.set_xlabel(f"k (of {rows[0]['of']} neurons)")
            legend_below(axis)
        left.set_ylabel("relative to the whole layer")
        right.set_ylabel("test accuracy, %")


def _draw_accuracies(axis: Any, report: Report, layers: int) -> None:
    from benchmarks.plots import COLOURS

    lines = [("ID", "before", ":"), ("ID", "after", "-"), ("magnitude", "before", ":"),
             ("magnitude", "after", "-"), ("scratch", "after", "--")]  # fmt: skip
    for method, when, style in lines:
        colour = COLOURS[("ID", "magnitude", "scratch").index(method)]
        widths = sorted(report.distinct("width", layers=layers, method=method))
        values = [
            [row[when] for row in report.where(layers=layers, method=method, width=width)]
            for width in widths
        ]
        means = [sum(v) / len(v) for v in values]
        errors = [float(torch.tensor(v).std()) / len(v) ** 0.5 if len(v) > 1 else 0 for v in values]
        label = "from scratch" if method == "scratch" else f"{method}, {when} fine-tuning"
        axis.errorbar(widths, means, errors, fmt=style, color=colour, label=label)
    axis.set_xscale("log", base=2)
    axis.set_title(_depth(layers))
    axis.set_xlabel("neurons per layer")
    axis.set_ylabel("test accuracy, %")
