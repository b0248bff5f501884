"""ATOM3D's ligand-binding affinity: a 3D convolutional network that predicts one number.

    python -m benchmarks atom3d --data DIR --device cuda [--weights DIR]

`--data` holds the LMDB folders train, val and test. Without --weights (voxels-lba.safetensors) the
network is trained first: Adam, rate 1e-3, batches of 16, 50 epochs, random rotations; the epoch
that is best on val stays. The complexes of val, without their affinities, calibrate. With --quick
and no data it runs on a stand-in of random atoms, whose figures mean nothing.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import interpress
from benchmarks.data.lba import Complex, made_up, read_complexes, voxels, write_complexes
from benchmarks.experiment import Job, Report, Row, Setting, need
from benchmarks.networks import Voxels
from benchmarks.tables import table
from interpress.demo import flops

ABOUT = "ATOM3D LBA: a 3D CNN for binding affinity (needs its LMDB; a stand-in with --quick)"
BUDGETS = (0.5, 0.25, 0.1, 0.05)
METHODS = ("iterative-id", "preserve")
PAPER = {"original": 1.43, 0.05: 1.43}  # root mean squared error; "no significant change" at 5 %


def jobs(setting: Setting) -> Iterator[Job]:
    """One: training comes first."""
    yield Job("lba", partial(_one, setting))


def _one(setting: Setting) -> list[Row]:
    with tempfile.TemporaryDirectory() as stand_in:
        folder = setting.folder("lba")
        if folder is None and setting.quick:
            folder = Path(stand_in)
            for seed, part in enumerate(("train", "val", "test")):
                write_complexes(folder / part, made_up(48, seed))
        folder = need(folder, "--data", "ATOM3D's LBA: train, val and test")
        limit = 48 if setting.quick else None
        parts = {part: read_complexes(folder / part, limit) for part in ("train", "val", "test")}
    radius = 8.0 if setting.quick else 20.0
    held = {part: _tensors(parts[part], radius) for part in ("val", "test")}
    model = _network(setting, parts["train"], held["val"], radius)
    return _compressed(setting, model, held)


def _tensors(complexes: list[Complex], radius: float) -> tuple[Tensor, Tensor]:
    grids = torch.stack([voxels(one, radius) for one in complexes])
    return grids, torch.tensor([one.affinity for one in complexes])


def _network(
    setting: Setting, complexes: list[Complex], val: tuple[Tensor, Tensor], radius: float
) -> nn.Module:
    torch.manual_seed(0)
    model = Voxels(size=int(2 * radius) + 1, width=1 / 8 if setting.quick else 1.0)
    model.to(setting.device)
    if setting.weights is not None:
        file = "voxels-lba.safetensors"
        model.load_state_dict(load_file(need(setting.weights, "--weights", file) / file))
        return model.eval()
    return _trained(setting, model, complexes, val, radius)


def _trained(
    setting: Setting,
    model: nn.Module,
    complexes: list[Complex],
    val: tuple[Tensor, Tensor],
    radius: float,
) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    turning = np.random.default_rng(0)
    best = (float("inf"), copy.deepcopy(model.state_dict()))
    for _ in setting.track(range(setting.count(50, 3)), "training"):
        model.train()
        for chosen in torch.randperm(len(complexes)).split(16):
            some = [complexes[i] for i in chosen.tolist()]
            grids = torch.stack([voxels(one, radius, turning) for one in some])
            wished = torch.tensor([one.affinity for one in some], device=setting.device)
            loss = nn.functional.mse_loss(model(grids.to(setting.device)), wished)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        error = rmse(model.eval(), *val)
        if error < best[0]:
            best = (error, copy.deepcopy(model.state_dict()))
    model.load_state_dict(best[1])
    return model.eval()


def rmse(model: nn.Module, grids: Tensor, affinities: Tensor) -> float:
    """Root mean squared error of a network."""
    device = next(model.parameters()).device
    with torch.no_grad():
        found = torch.cat([model(some.to(device)).cpu() for some in grids.split(16)])
    return float((found - affinities).square().mean().sqrt())


def _compressed(
    setting: Setting, model: nn.Module, held: dict[str, tuple[Tensor, Tensor]]
) -> list[Row]:
    calibration, test = held["val"][0], held["test"]
    example = calibration[:1].to(setting.device)
    rows: list[Row] = [
        {"method": "original", "asked": 1.0, "flops": 1.0, "rmse": rmse(model, *test)}
    ]
    batches = list(calibration.split(8))
    analysis = interpress.analyze(model, batches, kind="regression", progress=False)
    for asked in setting.track(BUDGETS[:1] if setting.quick else BUDGETS, "budgets"):
        for method in METHODS:
            result = analysis.compress(flops=asked, method=method, progress=False)
            found = interpress.agreement(
                model, result.model, list(test[0].split(8)), kind="regression", progress=False
            )
            rows.append({
                "method": method, "asked": asked, "rmse": rmse(result.model, *test),
                "flops": flops(result.model, example) / flops(model, example),
                "error": found.output_error,
            })  # fmt: skip
    return rows


def tables(report: Report) -> str:
    """Error by budget."""
    lines = [
        [row["method"], f"{row['flops']:.3f}", f"{row['rmse']:.3f}",
         "" if row.get("error") is None else f"{row['error']:.3f}",
         PAPER["original"] if row["method"] == "original"
         else PAPER.get(row["asked"], "") if row["method"] == "iterative-id" else ""]
        for row in report.all
    ]  # fmt: skip
    return table(["method", "FLOPs", "RMSE", "relative change of outputs", "paper: RMSE"], lines)
