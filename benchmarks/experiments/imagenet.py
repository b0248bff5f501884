"""ImageNet: VGG-16 and MobileNetV1, the paper's split of the validation images.

    python -m benchmarks imagenet --data DIR --weights DIR --device cuda

`--data` holds val/<class>/*.JPEG or Parquet files, `--weights` holds vgg16-imagenet.safetensors
(with torchvision's names) and mobilenetv1-imagenet.safetensors (those of `benchmarks.networks`). As
in the paper, 5,000 images calibrate Iterative ID on VGG-16 at steps of 5 %, 1,000 Constant Fraction
ID on MobileNetV1; `preserve` gets the same images. With --quick and no data it runs on a stand-in
(digits as JPEG files, narrow untrained networks), whose figures mean nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

import interpress
from benchmarks.data.imagenet import ImageNet, loader
from benchmarks.experiment import ExperimentError, Job, Report, Row, Setting, need
from benchmarks.networks import ImageNetMobileNetV1, ImageNetVGG16
from benchmarks.subjects import digits_for_training
from benchmarks.tables import table
from interpress.demo import flops

ABOUT = "ImageNet: VGG-16 and MobileNetV1 (needs ImageNet; a stand-in with --quick)"
PAPER_METHOD = {"vgg16": ("iterative-id", 5000), "mobilenetv1": ("constant-id", 1000)}
BUDGETS = (0.75, 0.57, 0.5)
PAPER = {("vgg16", 0.75): 68.03}  # top-1 of ID before fine-tuning, with 5,000 images


def jobs(setting: Setting) -> Iterator[Job]:
    """One per network."""
    for name in PAPER_METHOD:
        yield Job(name, partial(_one, setting, name))


def _one(setting: Setting, name: str) -> list[Row]:
    with tempfile.TemporaryDirectory() as stand_in:
        folder = setting.folder("imagenet")
        if folder is None and setting.quick:
            folder = digits_as_jpeg(Path(stand_in))
        images = ImageNet(need(folder, "--data", "ImageNet's val folder"), _size(setting))
        return _measured(setting, name, images)


def _size(setting: Setting) -> int:
    return 32 if setting.quick and setting.data is None else 224


def _network(setting: Setting, name: str, classes: int) -> nn.Module:
    made = {"vgg16": ImageNetVGG16, "mobilenetv1": ImageNetMobileNetV1}[name]
    if setting.weights is None and setting.quick:
        torch.manual_seed(0)
        return made(classes, 1 / 32, _size(setting)).to(setting.device).eval()
    file = f"{name}-imagenet.safetensors"
    weights = need(setting.weights, "--weights", file)
    if not (weights / file).is_file():
        raise ExperimentError(f"{weights} has no {file}; save the trained network's state there")
    model = made(classes)
    model.load_state_dict(load_file(weights / file))
    return model.to(setting.device).eval()


def _measured(setting: Setting, name: str, images: ImageNet) -> list[Row]:
    method, wanted = PAPER_METHOD[name]
    model = _network(setting, name, images.classes)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0)).tolist()
    count = min(wanted, len(images) // 2) if setting.quick else wanted
    if len(images) <= count:
        raise ExperimentError(
            f"{len(images)} images are too few to calibrate on {count} and judge by others; give "
            "all 50,000 validation images, or use --quick"
        )
    workers = 0 if setting.quick else 8
    calibration = loader(images, order[:count], 50, workers)
    judging = loader(images, order[count:], 100, workers)
    example = images[0][0][None].to(setting.device)
    analysis = interpress.analyze(model, calibration, progress=False)
    chosen: dict[str, dict[str, Any]] = {
        "preserve": {},
        method: {"method": method, "step": 0.05},
        "l1": {"selection": "l1", "allocation": "constant", "refit": False, "correct": False},
    }
    rows: list[Row] = []
    for asked in setting.track(BUDGETS[:1] if setting.quick else BUDGETS, name):
        for label, parts in chosen.items():
            result = analysis.compress(flops=asked, progress=False, **parts)
            found = interpress.agreement(model, result.model, judging, progress=False)
            assert found.accuracy is not None
            rows.append({
                "network": name, "method": label, "asked": asked, "images": found.examples,
                "flops": flops(result.model, example) / flops(model, example),
                "agreement": 100 * float(found), "accuracy": 100 * found.accuracy[1],
                "original": 100 * found.accuracy[0],
            })  # fmt: skip
    return rows


def digits_as_jpeg(folder: Path) -> Path:
    """The digits as a folder of folders of JPEG files, as ImageNet is laid out."""
    from PIL import Image

    images, labels = (part[:300] for part in digits_for_training())
    for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        own = folder / "val" / f"n{label:08d}"
        own.mkdir(parents=True, exist_ok=True)
        pixels = (image[0] * 255).clamp(0, 255).byte().numpy()
        Image.fromarray(pixels).resize((48, 40)).save(own / f"digit_{number:08d}.JPEG")
    return folder


def tables(report: Report) -> str:
    """Agreement and accuracy by budget."""
    lines = [
        [f"{row['network']}, {row['method']}", f"{row['asked']:g}", f"{row['flops']:.3f}",
         f"{row['agreement']:.2f}", f"{row['accuracy']:.2f}", f"{row['original']:.2f}",
         PAPER.get((row["network"], row["asked"]), "") if row["method"].endswith("-id") else ""]
        for row in report.all
    ]  # fmt: skip
    header = ["network, method", "asked", "FLOPs", "agreement", "top-1", "original", "paper: top-1"]
    return table(header, lines)
