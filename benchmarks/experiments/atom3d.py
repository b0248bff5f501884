"""ATOM3D ligand-binding affinity: a 3D convolutional network with one output (regression).

    python -m benchmarks atom3d --data DIR --device cuda [--weights DIR]

`--data` has the LMDB folders train, val and test. Without --weights (voxels-lba.safetensors) the
network is trained first: Adam, learning rate 1e-3, batches of 16, 50 epochs, random rotations; the
epoch with the lowest error on val is kept. The complexes of val, without their affinities, are the
calibration set. With --quick and no data the experiment runs on random atoms; its numbers have no
meaning.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import interpress
from benchmarks.data.lba import Complex, random_entries, read_complexes, voxels, write_complexes
from benchmarks.experiment import Job, Report, Row, Settings, require_folder
from benchmarks.networks import Voxels
from benchmarks.tables import table
from interpress.demo import flops

ABOUT = "ATOM3D LBA: a 3D CNN for binding affinity (needs its LMDB; a stand-in with --quick)"
PARTS = ("train", "val", "test")
BUDGETS = (0.5, 0.25, 0.1, 0.05)
METHODS = ("iterative-id", "preserve")
PAPER = {"original": 1.43, 0.05: 1.43}  # RMSE; the paper reports "no significant change" at 5 %


class Grids(NamedTuple):
    """Voxel grids and their affinities."""

    grids: Tensor
    affinities: Tensor


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield a single job, because all budgets need the same trained network."""
    yield Job("lba", partial(_run, settings))


def _run(settings: Settings) -> list[Row]:
    with tempfile.TemporaryDirectory() as stand_in:
        folder = settings.folder("lba")
        if folder is None and settings.quick:
            folder = Path(stand_in)
            for seed, part in enumerate(PARTS):
                write_complexes(folder / part, random_entries(48, seed))
        folder = require_folder(folder, "--data", "ATOM3D's LBA: train, val and test")
        limit = 48 if settings.quick else None
        complexes = {part: read_complexes(folder / part, limit) for part in PARTS}
    radius = 8.0 if settings.quick else 20.0
    validation, test = (_grids(complexes[part], radius) for part in ("val", "test"))
    model = _network(settings, complexes["train"], validation, radius)
    return _compress(settings, model, validation.grids, test)


def _grids(complexes: list[Complex], radius: float) -> Grids:
    grids = torch.stack([voxels(molecule, radius) for molecule in complexes])
    return Grids(grids, torch.tensor([molecule.affinity for molecule in complexes]))


def _network(
    settings: Settings, complexes: list[Complex], validation: Grids, radius: float
) -> nn.Module:
    torch.manual_seed(0)
    model = Voxels(size=int(2 * radius) + 1, width=1 / 8 if settings.quick else 1.0)
    model.to(settings.device)
    if settings.weights is not None:
        file = "voxels-lba.safetensors"
        model.load_state_dict(load_file(require_folder(settings.weights, "--weights", file) / file))
        return model.eval()
    return _train(settings, model, complexes, validation, radius)


def _train(
    settings: Settings,
    model: nn.Module,
    complexes: list[Complex],
    validation: Grids,
    radius: float,
) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    rotations = np.random.default_rng(0)
    best_error, best_state = float("inf"), copy.deepcopy(model.state_dict())
    for _ in settings.track(range(settings.choose(50, 3)), "training"):
        model.train()
        for batch in torch.randperm(len(complexes)).split(16):
            molecules = [complexes[i] for i in batch.tolist()]
            grids = torch.stack([voxels(molecule, radius, rotations) for molecule in molecules])
            affinities = torch.tensor([m.affinity for m in molecules], device=settings.device)
            loss = nn.functional.mse_loss(model(grids.to(settings.device)), affinities)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        error = rmse(model.eval(), validation)
        if error < best_error:
            best_error, best_state = error, copy.deepcopy(model.state_dict())
    model.load_state_dict(best_state)
    return model.eval()


def rmse(model: nn.Module, data: Grids) -> float:
    """Return the root mean squared error of the predicted affinities."""
    device = next(model.parameters()).device
    with torch.no_grad():
        predicted = torch.cat([model(batch.to(device)).cpu() for batch in data.grids.split(16)])
    return float((predicted - data.affinities).square().mean().sqrt())


def _compress(settings: Settings, model: nn.Module, calibration: Tensor, test: Grids) -> list[Row]:
    example = calibration[:1].to(settings.device)
    rows: list[Row] = [
        {"method": "original", "asked": 1.0, "flops": 1.0, "rmse": rmse(model, test)}
    ]
    batches = list(calibration.split(8))
    analysis = interpress.analyze(model, batches, kind="regression", progress=False)
    for asked in settings.track(BUDGETS[:1] if settings.quick else BUDGETS, "budgets"):
        for method in METHODS:
            smaller = analysis.compress(flops=asked, method=method, progress=False).model
            comparison = interpress.agreement(
                model, smaller, list(test.grids.split(8)), kind="regression", progress=False
            )
            rows.append({
                "method": method, "asked": asked, "rmse": rmse(smaller, test),
                "flops": flops(smaller, example) / flops(model, example),
                "error": comparison.output_error,
            })  # fmt: skip
    return rows


def tables(report: Report) -> str:
    """Return the errors by budget."""
    lines = [
        [row["method"], f"{row['flops']:.3f}", f"{row['rmse']:.3f}",
         "" if row.get("error") is None else f"{row['error']:.3f}",
         PAPER["original"] if row["method"] == "original"
         else PAPER.get(row["asked"], "") if row["method"] == "iterative-id" else ""]
        for row in report.all_rows
    ]  # fmt: skip
    header = ["method", "FLOPs, fraction", "RMSE, -log K", "relative change of the outputs",
              "RMSE in the paper"]  # fmt: skip
    return table(header, lines)
