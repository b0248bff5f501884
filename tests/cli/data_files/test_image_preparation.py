"""Images become tensors of the size and scale that a network expects."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.cli.conftest import picture

from interpress.cli.data_files.image_preparation import ImagePreparation
from interpress.cli.data_options import DataOptions
from interpress.errors import DataError

PATH = Path("photos")


def encoded(height: int, width: int) -> bytes:
    """Return an image whose red channel counts columns."""
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    pixels[..., 0] = np.arange(width)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_pixels_are_normalized() -> None:
    image = encoded(4, 4)
    plain = ImagePreparation(DataOptions(PATH)).prepare(image, "image")
    assert plain.shape == (3, 4, 4)
    torch.testing.assert_close(plain[0, 0], torch.arange(4) / 255)
    scaled = ImagePreparation(DataOptions(PATH, mean="0.5,0,0", std="0.25,1,1"))
    torch.testing.assert_close(scaled.prepare(image, "image")[0, 0], (plain[0, 0] - 0.5) / 0.25)


def test_the_centre_is_cropped() -> None:
    cropped = ImagePreparation(DataOptions(PATH, size=4)).prepare(encoded(4, 10), "image")
    assert cropped.shape == (3, 4, 4)
    torch.testing.assert_close(cropped[0, 0], torch.arange(3, 7) / 255)
    assert ImagePreparation(DataOptions(PATH, size=6)).prepare(encoded(9, 5), "i").shape[1:] == (
        6,
        6,
    )


def test_gray_images_have_one_channel() -> None:
    assert ImagePreparation(DataOptions(PATH, gray=True)).prepare(picture(0), "i").shape == (
        1,
        8,
        8,
    )


def test_a_batch_needs_one_size() -> None:
    images: list[bytes | Path] = [picture(0), picture(1, 16)]
    with pytest.raises(DataError, match="a has 8x8 pixels and b has 16x16; give --size"):
        ImagePreparation(DataOptions(PATH)).batch(images, ["a", "b"])
    assert ImagePreparation(DataOptions(PATH, size=8)).batch(images, ["a", "b"]).shape == (
        2,
        3,
        8,
        8,
    )
