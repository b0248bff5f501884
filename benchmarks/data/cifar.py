"""CIFAR-10 from Parquet files with encoded images, as normalised tensors."""

from __future__ import annotations

import io
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.experiment import ExperimentError

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class Images(NamedTuple):
    """Normalised images and their labels."""

    images: Tensor
    labels: Tensor

    def take(self, index: Tensor) -> Images:
        """Return the images with these indices."""
        return Images(self.images[index], self.labels[index])


def load_cifar(folder: Path, part: str, limit: int | None = None) -> Images:
    """Return the part "train" or "test".

    It is read from `<part>.safetensors` (tensors `images`, uint8, and `labels`) if that exists,
    else from `<part>.parquet` (columns `img` and `label`).
    """
    tensor_file = folder / f"{part}.safetensors"
    if tensor_file.is_file():
        tensors = load_file(tensor_file)
        pixels, labels = tensors["images"][:limit], tensors["labels"][:limit]
    else:
        pixels, labels = _from_parquet(folder / f"{part}.parquet", limit)
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    return Images((pixels.float() / 255 - mean) / std, labels.long())


def _from_parquet(path: Path, limit: int | None) -> tuple[Tensor, Tensor]:
    import numpy as np
    import pyarrow.parquet as pq
    from PIL import Image

    if not path.is_file():
        raise ExperimentError(f"{path} does not exist; give the folder of CIFAR-10's Parquet files")
    table = pq.read_table(path)
    columns = table.slice(0, limit or table.num_rows).to_pydict()
    pictures = [np.asarray(Image.open(io.BytesIO(item["bytes"]))) for item in columns["img"]]
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2), torch.tensor(columns["label"])
