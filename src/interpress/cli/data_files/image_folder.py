"""A folder of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from interpress.cli.data_files.data_file import DataFile
from interpress.cli.data_files.image_preparation import IF_MISFIT, ImagePreparation
from interpress.cli.data_options import DataOptions

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")


class ImageFolder(DataFile):
    """The images in a folder; if all are in subfolders, the subfolders are the classes."""

    holds_images = True
    if_misfit = IF_MISFIT
    if_empty = "give a folder of images: " + ", ".join(IMAGE_SUFFIXES)

    def __init__(self, options: DataOptions) -> None:
        self._preparation = ImagePreparation(options)
        entries = sorted(options.path.rglob("*"))
        self._paths = [p for p in entries if p.suffix.lower() in IMAGE_SUFFIXES and p.is_file()]
        parts = [path.relative_to(options.path).parts for path in self._paths]
        if all(len(names) > 1 for names in parts):
            classes = sorted({names[0] for names in parts})
            self.labels = torch.tensor([classes.index(names[0]) for names in parts])

    @property
    def count(self) -> int:
        """The number of images."""
        return len(self._paths)

    def inputs(self, indices: Sequence[int]) -> Tensor:
        """Return prepared images (batch, channels, height, width)."""
        paths = [self._paths[index] for index in indices]
        return self._preparation.batch([*paths], [str(path) for path in paths])

    def preprocessing(self) -> dict[str, Any]:
        """Return how images are decoded, resized and normalised."""
        return self._preparation.record()
