"""The paper's illustrative example: too many neurons for a function on the unit circle.

Points of the unit circle; the label goes up by one on the positive side of one random vector, down
by one on that of another. A hidden layer of 5,000 learns it; 12 neurons are enough for what it
learnt. ID keeps 12 that represent it; magnitude keeps the largest, many of them duplicates.
Training stops at the paper's loss: steeper sides, which more training gives, need more neurons.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

import interpress
from benchmarks.experiment import Job, Report, Row, Setting
from benchmarks.tables import number, table

ABOUT = "the unit circle: loss against neurons, ID and magnitude"
KEPT = (2, 4, 6, 8, 10, 12, 16, 24, 32, 64, 128, 256, 512)
SHOWN = 12
PAPER = {"full": 0.037786, "ID": 0.037781, "magnitude": 0.33}  # test loss at 12 neurons


class OneHidden(nn.Module):
    """A hidden layer of ReLU, one output."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden, self.last = nn.Linear(2, width), nn.Linear(width, 1)
        for layer in (self.hidden, self.last):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, points: Tensor) -> Tensor:
        """One value per point."""
        return self.last(self.hidden(points).relu())


def jobs(setting: Setting) -> Iterator[Job]:
    """One per seed; the first is drawn."""
    for seed in setting.draws(5):
        yield Job(f"{seed}", partial(_one, setting, seed))


def _points(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    angle = 2 * math.pi * torch.rand(count, generator=generator)
    return angle, torch.stack([angle.cos(), angle.sin()], 1)


def _one(setting: Setting, seed: int) -> list[Row]:
    generator = torch.Generator().manual_seed(seed)
    width, steps = setting.count(5000, 500), setting.count(3000, 400)
    vectors = nn.functional.normalize(torch.randn(2, 2, generator=generator))

    def labels(points: Tensor) -> Tensor:
        sides = (points @ vectors.T > 0).float()
        return (sides[:, 0] - sides[:, 1])[:, None]

    _, train = _points(1000, generator)
    angle, test = _points(2000, generator)
    angle, order = angle.sort()
    test = test[order]
    torch.manual_seed(seed)
    model = OneHidden(width)
    model.to(setting.device)
    _fit(setting, model, train.to(setting.device), labels(train).to(setting.device), steps)
    target, points = labels(test).to(setting.device), test.to(setting.device)
    analysis = interpress.analyze(model, train.to(setting.device), kind="regression",
                                  patches=False, progress=False)  # fmt: skip
    rows: list[Row] = [{"seed": seed, "method": "full", "neurons": width,
                        "loss": _loss(model, points, target)}]  # fmt: skip
    chosen: dict[str, dict[str, Any]] = {
        "ID": {"selection": "pivoting", "correct": True},
        "magnitude": {"selection": "l2", "correct": False},
    }
    for neurons in KEPT:
        if neurons >= width:
            continue
        for method, parts in chosen.items():
            result = analysis.compress(
                width=neurons / width, allocation="constant", refit=False, progress=False,
                method="constant-id", **parts,
            )  # fmt: skip
            smaller = cast(OneHidden, result.model)
            row: Row = {"seed": seed, "method": method, "neurons": smaller.hidden.out_features,
                        "loss": _loss(smaller, points, target),
                        "apart": _loss(smaller, points, model(points).detach())}  # fmt: skip
            if neurons == SHOWN and seed == 0:
                row |= _picture(smaller, points)
            rows.append(row)
    if seed == 0:
        rows[0] |= _picture(model, points) | {"angle": angle[::20].tolist()}
        rows[0]["target"] = target[::20, 0].tolist()
    return rows


def _fit(setting: Setting, model: nn.Module, inputs: Tensor, labels: Tensor, steps: int) -> None:
    """Until the loss is the paper's: the further it is trained, the more neurons it needs."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in setting.track(range(steps), "training"):
        loss = nn.functional.mse_loss(model(inputs), labels)
        if float(loss) < 0.9 * PAPER["full"]:
            return
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _loss(model: nn.Module, inputs: Tensor, target: Tensor) -> float:
    with torch.no_grad():
        return float(nn.functional.mse_loss(model(inputs), target))


def _picture(model: OneHidden, points: Tensor) -> Row:
    """The function and the neurons (weights scaled by their coefficient, and bias)."""
    with torch.no_grad():
        values = model(points)[::20, 0]
        scale = model.last.weight[0].abs()
        neurons = torch.cat([model.hidden.weight * scale[:, None], model.hidden.bias[:, None]], 1)
    return {"function": values.tolist(), "shown": neurons[:600].tolist()}


def tables(report: Report) -> str:
    """Loss by number of neurons, mean over seeds."""
    lines = []
    full = report.where(method="full")
    lines.append([f"all {full[0]['neurons']}", _mean(full), "", number(PAPER["full"], 4), ""])
    for neurons in sorted({row["neurons"] for row in report.all if row["method"] != "full"}):
        cells = [_mean(report.where(method=method, neurons=neurons))
                 for method in ("ID", "magnitude")]  # fmt: skip
        printed = [number(PAPER[m], 4) if neurons == SHOWN else "" for m in ("ID", "magnitude")]
        lines.append([neurons, *cells, *printed])
    header = ["neurons", "ID", "magnitude", "paper: ID", "paper: magnitude"]
    return "Test loss (mean squared error)\n\n" + table(header, lines)


def _mean(rows: list[Row]) -> str:
    return number(sum(row["loss"] for row in rows) / len(rows), 4) if rows else ""


def draw(report: Report, folder: Path) -> None:
    """Loss against neurons, the function, the neurons kept."""
    from benchmarks.plots import COLOURS, figure, legend_below

    full = report.where(method="full", seed=0)[0]
    with figure(folder / "circle.svg", 2) as (left, right):
        for place, method in enumerate(("ID", "magnitude")):
            rows = report.where(method=method, seed=0)
            left.loglog([r["neurons"] for r in rows], [r["loss"] for r in rows], "o-", ms=3,
                        color=COLOURS[place], label=method)  # fmt: skip
            shown = next(row for row in rows if "function" in row)
            right.plot(full["angle"], shown["function"], color=COLOURS[place], zorder=3 - place,
                       label=f"{method}, {shown['neurons']} neurons")  # fmt: skip
        left.axhline(full["loss"], color="0.5", ls="--", label=f"all {full['neurons']}")
        right.plot(full["angle"], full["function"], color="0.5", lw=4, alpha=0.5, label="all")
        left.set_xlabel("neurons kept")
        left.set_ylabel("test loss")
        right.set_xlabel("angle")
        for axis in (left, right):
            legend_below(axis)
    kept = [full]
    for method in ("ID", "magnitude"):
        kept += [row for row in report.where(method=method, seed=0) if "shown" in row]
    with figure(folder / "circle-neurons.svg", 3, width=3.2) as axes:
        for axis, row in zip(axes, kept, strict=True):
            x, y, bias = zip(*row["shown"], strict=True)
            axis.scatter(x, y, c=bias, s=12, cmap="coolwarm")
            axis.set_title(f"{row['method']}, {row['neurons']} neurons")
            axis.set_xlabel("weight, scaled by its coefficient")
