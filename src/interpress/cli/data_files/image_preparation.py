"""`ImagePreparation`: from an encoded image to the tensor that a network takes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interpress.cli.data_options import INTERPOLATIONS, DataOptions
from interpress.errors import ArgumentError, DataError

IF_MISFIT = "prepare the images as the model expects them, with --size, --preset or --gray"
"""What to tell the user if the model does not run on the images."""


class ImagePreparation:
    """Decodes, resizes, crops and normalises images."""

    def __init__(self, options: DataOptions) -> None:
        self.size, self.gray, self.preset = options.image_size(), options.gray, options.preset
        self._shorter_side, self._crop = options.resized(), options.crop or 1.0
        self._interpolation = (options.interpolation or INTERPOLATIONS[0]).upper()
        self.mean, self.std = (torch.tensor(values) for values in options.normalization())

    def record(self) -> dict[str, Any]:
        """Return what is done to every image; pixels are in [0, 1] before mean and std."""
        mean, std = ([round(value, 6) for value in t.tolist()] for t in (self.mean, self.std))
        return {
            "inputs": "images",
            "preset": self.preset,
            "size": self.size,
            "mean": mean,
            "std": std,
            "color": "gray" if self.gray else "RGB",
            "crop": self._crop,
            "interpolation": self._interpolation.lower(),
        }

    def batch(self, images: list[bytes | Path], names: list[str]) -> Tensor:
        """Return prepared images (batch, channels, height, width); `names` are for errors."""
        tensors = [self.prepare(i, name) for i, name in zip(images, names, strict=True)]
        for tensor, name in zip(tensors, names, strict=True):
            if tensor.shape != tensors[0].shape:
                sizes = ["x".join(map(str, t.shape[1:])) for t in (tensors[0], tensor)]
                raise DataError(
                    f"{names[0]} has {sizes[0]} pixels and {name} has {sizes[1]}; give --size or "
                    "--preset to make them equal"
                )
        return torch.stack(tensors)

    def prepare(self, image: bytes | Path, name: str) -> Tensor:
        """Return one prepared image (channels, height, width)."""
        pillow = _pillow()
        try:
            with pillow.open(io.BytesIO(image) if isinstance(image, bytes) else image) as opened:
                converted = self._resize(opened.convert("L" if self.gray else "RGB"))
                pixels = np.asarray(converted, dtype=np.float32) / 255
        except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
            raise DataError(
                f"{name} is not a readable image ({error}); remove or repair it"
            ) from error
        tensor = torch.from_numpy(pixels)
        tensor = tensor[None] if self.gray else tensor.permute(2, 0, 1)
        return (tensor - self.mean[:, None, None]) / self.std[:, None, None]

    def _resize(self, image: Any) -> Any:
        """Resize the shorter side, and crop the centre of `size` pixels."""
        if self.size is None or self._shorter_side is None:
            return image
        if min(image.size) != self._shorter_side:
            shorter = min(image.size)  # rounded as in torchvision, which timm uses
            width, height = (self._shorter_side * side // shorter for side in image.size)
            image = image.resize((width, height), _pillow().Resampling[self._interpolation])
        width, height = image.size
        left, top = round((width - self.size) / 2), round((height - self.size) / 2)
        return image.crop((left, top, left + self.size, top + self.size))


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ArgumentError("images need Pillow: pip install 'interpress[images]'") from error
    return Image
