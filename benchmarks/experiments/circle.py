"""The paper's illustrative example: an overparametrized network on the unit circle.

The inputs are points of the unit circle. The target is the sum of +1 on the positive side of one
random vector and -1 on the positive side of another. A hidden layer of 5,000 neurons is trained; 12
neurons can represent what it learned. ID keeps neurons that span the others. Magnitude pruning
keeps the largest ones, and many of those are duplicates. Training stops at the paper's loss: more
training makes the steps of the function steeper, and those need more neurons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

import interpress
from benchmarks.experiment import Job, Report, Row, Settings
from benchmarks.tables import significant, table
from interpress import Method

ABOUT = "the unit circle: test loss by number of neurons, for ID and magnitude pruning"
WIDTHS = (2, 4, 6, 8, 10, 12, 16, 24, 32, 64, 128, 256, 512)
PLOTTED_WIDTH = 12
PAPER = {"full": 0.037786, "ID": 0.037781, "magnitude": 0.33}  # test loss at 12 neurons
METHODS = {
    "ID": Method.named("constant-id"),
    "magnitude": Method.named("constant-id", selection="l2", correct=False),
}
_PLOTTED_POINTS = slice(None, None, 20)  # every 20th of the sorted test points
_PLOTTED_NEURONS = 600


class OneHiddenLayer(nn.Module):
    """A hidden ReLU layer and one output."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden, self.last = nn.Linear(2, width), nn.Linear(width, 1)
        for layer in (self.hidden, self.last):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, points: Tensor) -> Tensor:
        """Return one value per point."""
        return self.last(self.hidden(points).relu())


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield one job per seed; the plots show the first seed."""
    for seed in settings.seed_range(5):
        yield Job(f"{seed}", partial(_run, settings, seed))


def _run(settings: Settings, seed: int) -> list[Row]:
    generator = torch.Generator().manual_seed(seed)
    width = settings.choose(5000, 500)
    target = _target_function(generator)
    _, train_points = _points(1000, generator)
    angles, test_points = _points(2000, generator)
    angles, order = angles.sort()
    test_points = test_points[order].to(settings.device)
    test_values = target(test_points)
    torch.manual_seed(seed)
    model = OneHiddenLayer(width)
    model.to(settings.device)
    train_points = train_points.to(settings.device)
    _fit(settings, model, train_points, target(train_points))
    full: Row = {
        "seed": seed,
        "method": "full",
        "neurons": width,
        "loss": _loss(model, test_points, test_values),
    }
    if seed == 0:
        full |= _plot_data(model, test_points)
        full["angle"] = angles[_PLOTTED_POINTS].tolist()
        full["target"] = test_values[_PLOTTED_POINTS, 0].tolist()
    return [full, *_compressed(model, train_points, test_points, test_values, seed)]


def _points(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    angles = 2 * math.pi * torch.rand(count, generator=generator)
    return angles, torch.stack([angles.cos(), angles.sin()], 1)


def _target_function(generator: torch.Generator) -> Callable[[Tensor], Tensor]:
    vectors = nn.functional.normalize(torch.randn(2, 2, generator=generator))

    def target(points: Tensor) -> Tensor:
        sides = (points @ vectors.T.to(points.device) > 0).float()
        return (sides[:, 0] - sides[:, 1])[:, None]

    return target


def _compressed(
    model: OneHiddenLayer, train_points: Tensor, test_points: Tensor, values: Tensor, seed: int
) -> list[Row]:
    """Return the losses of both methods at every width."""
    width = model.hidden.out_features
    analysis = interpress.analyze(
        model, train_points, kind="regression", patches=False, progress=False
    )
    rows: list[Row] = []
    for neurons in WIDTHS:
        if neurons >= width:
            continue
        for name, method in METHODS.items():
            result = analysis.compress(width=neurons / width, method=method, progress=False)
            smaller = cast(OneHiddenLayer, result.model)
            row: Row = {
                "seed": seed,
                "method": name,
                "neurons": smaller.hidden.out_features,
                "loss": _loss(smaller, test_points, values),
                "apart": _loss(smaller, test_points, model(test_points).detach()),
            }
            if neurons == PLOTTED_WIDTH and seed == 0:
                row |= _plot_data(smaller, test_points)
            rows.append(row)
    return rows


def _fit(settings: Settings, model: nn.Module, inputs: Tensor, values: Tensor) -> None:
    """Train until the training loss is 0.9 of the paper's test loss."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in settings.track(range(settings.choose(3000, 400)), "training"):
        loss = nn.functional.mse_loss(model(inputs), values)
        if float(loss) < 0.9 * PAPER["full"]:
            return
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _loss(model: nn.Module, inputs: Tensor, values: Tensor) -> float:
    with torch.no_grad():
        return float(nn.functional.mse_loss(model(inputs), values))


def _plot_data(model: OneHiddenLayer, points: Tensor) -> Row:
    """Return the function and the neurons: input weights times output weight, and bias."""
    with torch.no_grad():
        values = model(points)[_PLOTTED_POINTS, 0]
        scale = model.last.weight[0].abs()
        neurons = torch.cat([model.hidden.weight * scale[:, None], model.hidden.bias[:, None]], 1)
    return {"function": values.tolist(), "shown": neurons[:_PLOTTED_NEURONS].tolist()}


def tables(report: Report) -> str:
    """Return the mean loss by number of neurons."""
    full = report.where(method="full")
    lines = [
        [f"{full[0]['neurons']} (all)", _mean_loss(full), "", significant(PAPER["full"], 4), ""]
    ]
    for neurons in sorted({row["neurons"] for row in report.all_rows if row["method"] in METHODS}):
        measured = [_mean_loss(report.where(method=name, neurons=neurons)) for name in METHODS]
        published = [
            significant(PAPER[name], 4) if neurons == PLOTTED_WIDTH else "" for name in METHODS
        ]
        lines.append([str(neurons), *measured, *published])
    header = ["neurons", "ID", "magnitude", "ID (paper)", "magnitude (paper)"]
    return "Test loss: mean squared error, mean over seeds\n\n" + table(header, lines)


def _mean_loss(rows: list[Row]) -> str:
    return significant(sum(row["loss"] for row in rows) / len(rows), 4) if rows else ""


def draw(report: Report, folder: Path) -> None:
    """Plot the loss by number of neurons, the functions, and the kept neurons."""
    from benchmarks.plots import COLOURS, figure, legend_below

    full = report.where(method="full", seed=0)[0]
    with figure(folder / "circle.svg", 2) as (left, right):
        for place, method in enumerate(METHODS):
            rows = report.where(method=method, seed=0)
            left.loglog([r["neurons"] for r in rows], [r["loss"] for r in rows], "o-", ms=3,
                        color=COLOURS[place], label=method)  # fmt: skip
            plotted = next(row for row in rows if "function" in row)
            right.plot(full["angle"], plotted["function"], color=COLOURS[place], zorder=3 - place,
                       label=f"{method}, {plotted['neurons']} neurons")  # fmt: skip
        all_neurons = f"all {full['neurons']} neurons"
        left.axhline(full["loss"], color="0.5", ls="--", label=all_neurons)
        right.plot(full["angle"], full["function"], color="0.5", lw=4, alpha=0.5, label=all_neurons)
        left.set_xlabel("neurons kept")
        left.set_ylabel("test loss (mean squared error)")
        right.set_xlabel("angle, radians")
        right.set_ylabel("output")
        for axis in (left, right):
            legend_below(axis)
    _draw_neurons(report, full, folder / "circle-neurons.svg")


def _draw_neurons(report: Report, full: Row, path: Path) -> None:
    from benchmarks.plots import figure

    networks = [full]
    for method in METHODS:
        networks += [row for row in report.where(method=method, seed=0) if "shown" in row]
    with figure(path, 3, width=3.2) as axes:
        for axis, row in zip(axes, networks, strict=True):
            x, y, bias = zip(*row["shown"], strict=True)
            axis.scatter(x, y, c=bias, s=12, cmap="coolwarm")
            method = "all" if row is full else f"{row['method']},"
            axis.set_title(f"{method} {row['neurons']} neurons")
            axis.set_xlabel("first input weight, scaled")
        axes[0].set_ylabel("second input weight, scaled")
