"""Photographs of ImageNet from one Parquet file, as EfficientNet-Lite2 takes them."""

from __future__ import annotations

import io
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.experiment import ExperimentError

_SIZE = 260  # pixels of either side


def load_samples(path: Path, limit: int | None = None) -> tuple[Tensor, Tensor]:
    """Return images (count, 3, 260, 260), scaled as `(x - 127) / 128`, and their labels.

    The file has the columns `img`, which holds encoded images, and `label`.
    """
    import numpy as np
    import pyarrow.parquet as pq
    from PIL import Image

    if not path.is_file():
        raise ExperimentError(f"{path} does not exist; give the folder with imagenet-samples")
    table = pq.read_table(path)
    columns = table.slice(0, limit or table.num_rows).to_pydict()
    pictures = []
    for item in columns["img"]:
        picture = Image.open(io.BytesIO(item["bytes"])).convert("RGB").resize((_SIZE, _SIZE))
        pictures.append(torch.from_numpy(np.asarray(picture).copy()))
    images = (torch.stack(pictures).permute(0, 3, 1, 2).float() - 127) / 128
    return images, torch.tensor(columns["label"])
