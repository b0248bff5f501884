"""ImageNet: VGG-16 and MobileNetV1, with the paper's split of the validation images.

    python -m benchmarks imagenet --data DIR --weights DIR --device cuda

`--data` has val/<class>/*.JPEG or Parquet files. `--weights` has vgg16-imagenet.safetensors (with
torchvision's parameter names) and mobilenetv1-imagenet.safetensors (with those of
`benchmarks.networks`). As in the paper, VGG-16 is calibrated with 5,000 images and compressed by
Iterative ID in steps of 5 %, and MobileNetV1 with 1,000 images and Constant Fraction ID. `preserve`
gets the same images. With --quick and no data the experiment runs on a stand-in (digits as JPEG
files, narrow untrained networks); its numbers have no meaning.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

import interpress
from benchmarks.data.imagenet import ImageNet, loader
from benchmarks.experiment import ExperimentError, Job, Report, Row, Settings, require_folder
from benchmarks.networks import ImageNetMobileNetV1, ImageNetVGG16
from benchmarks.subjects import load_training_digits
from benchmarks.tables import network_title, table
from interpress import Method
from interpress.demo import flops

ABOUT = "ImageNet: VGG-16 and MobileNetV1 (needs ImageNet; a stand-in with --quick)"
ARCHITECTURES = {"vgg16": ImageNetVGG16, "mobilenetv1": ImageNetMobileNetV1}
PAPER_METHOD = {"vgg16": ("iterative-id", 5000), "mobilenetv1": ("constant-id", 1000)}
"""Per network, the paper's method and its number of calibration images."""
BUDGETS = (0.75, 0.57, 0.5)
PAPER = {("vgg16", 0.75): 68.03}  # top-1 accuracy of ID before fine-tuning, with 5,000 images


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield one job per network."""
    for name in PAPER_METHOD:
        yield Job(name, partial(_run, settings, name))


def _run(settings: Settings, name: str) -> list[Row]:
    with tempfile.TemporaryDirectory() as stand_in:
        folder = settings.folder("imagenet")
        if folder is None and settings.quick:
            folder = write_digits_as_jpeg(Path(stand_in))
        folder = require_folder(folder, "--data", "ImageNet's val folder")
        return _measure(settings, name, ImageNet(folder, _image_size(settings)))


def _image_size(settings: Settings) -> int:
    return 32 if settings.quick and settings.data is None else 224


def _network(settings: Settings, name: str, classes: int) -> nn.Module:
    architecture = ARCHITECTURES[name]
    if settings.weights is None and settings.quick:
        torch.manual_seed(0)
        return architecture(classes, 1 / 32, _image_size(settings)).to(settings.device).eval()
    file = f"{name}-imagenet.safetensors"
    weights = require_folder(settings.weights, "--weights", file)
    if not (weights / file).is_file():
        raise ExperimentError(f"{weights} has no {file}; save the trained network's state there")
    model = architecture(classes)
    model.load_state_dict(load_file(weights / file))
    return model.to(settings.device).eval()


def _measure(settings: Settings, name: str, images: ImageNet) -> list[Row]:
    paper_method, calibration_size = PAPER_METHOD[name]
    model = _network(settings, name, images.classes)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0)).tolist()
    count = min(calibration_size, len(images) // 2) if settings.quick else calibration_size
    if len(images) <= count:
        raise ExperimentError(
            f"{len(images)} images are too few: {count} are needed for calibration, and others for "
            "testing; give all 50,000 validation images, or use --quick"
        )
    workers = 0 if settings.quick else 8
    testing = loader(images, order[count:], 100, workers)
    example = images[0][0][None].to(settings.device)
    analysis = interpress.analyze(model, loader(images, order[:count], 50, workers), progress=False)
    methods = {
        "preserve": Method(),
        paper_method: Method.named(paper_method, step=0.05),
        "l1": Method(selection="l1", allocation="constant", refit=False, correct=False),
    }
    rows: list[Row] = []
    for asked in settings.track(BUDGETS[:1] if settings.quick else BUDGETS, name):
        for label, method in methods.items():
            smaller = analysis.compress(flops=asked, method=method, progress=False).model
            comparison = interpress.agreement(model, smaller, testing, progress=False)
            assert comparison.accuracy is not None
            rows.append({
                "network": name, "method": label, "asked": asked, "images": comparison.examples,
                "flops": flops(smaller, example) / flops(model, example),
                "agreement": 100 * float(comparison), "accuracy": 100 * comparison.accuracy[1],
                "original": 100 * comparison.accuracy[0],
            })  # fmt: skip
    return rows


def write_digits_as_jpeg(folder: Path) -> Path:
    """Write the digits as JPEG files in ImageNet's layout; return the folder."""
    from PIL import Image

    images, labels = (part[:300] for part in load_training_digits())
    for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        class_folder = folder / "val" / f"n{label:08d}"
        class_folder.mkdir(parents=True, exist_ok=True)
        pixels = (image[0] * 255).clamp(0, 255).byte().numpy()
        Image.fromarray(pixels).resize((48, 40)).save(class_folder / f"digit_{number:08d}.JPEG")
    return folder


def tables(report: Report) -> str:
    """Return agreement and accuracy by budget."""
    lines = [
        [network_title(row["network"]), row["method"], f"{row['asked']:g}", f"{row['flops']:.3f}",
         f"{row['agreement']:.2f}", f"{row['accuracy']:.2f}", f"{row['original']:.2f}",
         PAPER.get((row["network"], row["asked"]), "") if row["method"].endswith("-id") else ""]
        for row in report.all_rows
    ]  # fmt: skip
    header = ["network", "method", "requested FLOPs", "FLOPs", "agreement", "top-1 accuracy",
              "of the original", "in the paper"]  # fmt: skip
    caption = "FLOPs as fractions of the original; agreement and top-1 accuracy in percent"
    return f"{caption}\n\n" + table(header, lines, text_columns=2)
