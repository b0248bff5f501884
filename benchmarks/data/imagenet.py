"""ImageNet's validation images from one folder per class or from Parquet, read on demand."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from benchmarks.experiment import ExperimentError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_SUFFIXES = {".jpeg", ".jpg", ".png"}


class ImageNet(Dataset[tuple[Tensor, int]]):
    """Normalised images (3, size, size) with their class.

    They are read from `<folder>/val/<class>/*.JPEG`, with classes numbered in alphabetical order as
    in torchvision, or from `<folder>/*.parquet` with columns `image` (bytes) and `label`.
    """

    def __init__(self, folder: Path, size: int = 224) -> None:
        self.size = size
        self._table: Any = None
        images_folder = folder / "val" if (folder / "val").is_dir() else folder
        classes = sorted(path for path in images_folder.iterdir() if path.is_dir())
        self._files = [
            (path, label)
            for label, class_folder in enumerate(classes)
            for path in sorted(class_folder.iterdir())
            if path.suffix.lower() in _SUFFIXES
        ]
        self.classes = len(classes)
        if not self._files:
            self._open_parquet(folder)

    def _open_parquet(self, folder: Path) -> None:
        files = sorted(folder.glob("*.parquet"))
        if not files:
            raise ExperimentError(
                f"{folder} has neither val/<class>/*.JPEG nor *.parquet; give ImageNet's folder"
            )
        import pyarrow.parquet as pq

        self._table = pq.ParquetDataset(files).read(columns=["image", "label"])
        self.classes = int(max(self._table["label"].to_pylist())) + 1

    def __len__(self) -> int:
        return len(self._files) if self._table is None else int(self._table.num_rows)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image

        if self._table is None:
            path, label = self._files[index]
            source: Any = path
        else:
            source = io.BytesIO(self._table["image"][index].as_py()["bytes"])
            label = int(self._table["label"][index].as_py())
        with Image.open(source) as picture:
            return self._preprocess(picture.convert("RGB")), label

    def _preprocess(self, picture: Any) -> Tensor:
        """Resize the shorter side to 256/224 of `size`, crop the centre, and normalise."""
        from PIL import Image

        scale = self.size * 256 / 224 / min(picture.size)
        width, height = (max(self.size, round(side * scale)) for side in picture.size)
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
        left, top = (width - self.size) // 2, (height - self.size) // 2
        picture = picture.crop((left, top, left + self.size, top + self.size))
        pixels = torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float() / 255
        mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
        return (pixels - mean) / std


def loader(images: ImageNet, index: Sequence[int], batch: int, workers: int) -> DataLoader[Any]:
    """Return a loader of the images with these indices, in this order."""
    return DataLoader(Subset(images, list(index)), batch, num_workers=workers)
