"""Fashion-MNIST from its published files, or scikit-learn's digits as a stand-in.

The files are `train-images-idx3-ubyte.gz` and the three others of the data set. Without `--data`
they are read from the folder of Debian's package `dataset-fashion-mnist`, if it is installed.
"""

from __future__ import annotations

import gzip
import struct
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.data.cifar import Images
from benchmarks.experiment import ExperimentError, Settings

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")


class Pictures(NamedTuple):
    """Training and test images, each flattened to a row."""

    name: str
    train: Images
    test: Images


def load_pictures(settings: Settings) -> Pictures:
    """Return Fashion-MNIST, or the digits for `--quick` if Fashion-MNIST is not there."""
    folder = settings.folder("fashion-mnist") or (DEBIAN_FOLDER if DEBIAN_FOLDER.is_dir() else None)
    return _load(folder, settings.quick)


@cache
def _load(folder: Path | None, quick: bool) -> Pictures:
    if folder is not None:
        limit = 4000 if quick else None
        parts = [
            Images(_normalise(read_idx(folder, f"{part}-images-idx3-ubyte")[:limit]),
                   read_idx(folder, f"{part}-labels-idx1-ubyte")[:limit].long())
            for part in ("train", "t10k")
        ]  # fmt: skip
        return Pictures("Fashion-MNIST", *parts)
    if not quick:
        raise ExperimentError(
            "--data is missing: give the folder with Fashion-MNIST's four .gz files, or install "
            "Debian's package dataset-fashion-mnist; or give --quick, which uses digits"
        )
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(pixels, dtype=torch.float32)[order] / 16
    targets = torch.tensor(labels)[order]
    return Pictures(
        "digits", Images(images[:1200], targets[:1200]), Images(images[1200:], targets[1200:])
    )


def _normalise(pixels: Tensor) -> Tensor:
    """Return flattened images, normalised by the mean and deviation of the training images."""
    return (pixels.flatten(1).float() / 255 - 0.2860) / 0.3530


def read_idx(folder: Path, name: str) -> Tensor:
    """Return an array in the IDX format, gzipped or not."""
    path = next((p for p in (folder / f"{name}.gz", folder / name) if p.is_file()), None)
    if path is None:
        raise ExperimentError(f"{folder} has no {name}.gz; give the folder of Fashion-MNIST")
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    zeros, kind, dims = struct.unpack(">HBB", raw[:4])
    if zeros != 0 or kind != 8:
        raise ExperimentError(f"{path} is not an IDX file of bytes; download it again")
    shape = struct.unpack(f">{dims}I", raw[4 : 4 + 4 * dims])
    data = np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * dims)
    if data.size != int(np.prod(shape)):
        raise ExperimentError(f"{path} has {data.size} bytes instead of {shape}; download it again")
    return torch.from_numpy(data.reshape(shape).copy())
