"""Thumbnails are PNG files that other programs can read."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch

from interpress.report.thumbnails import thumbnail


def decoded(url: str) -> np.ndarray:  # type: ignore[type-arg]
    """Return the pixels of a data URL as Pillow reads them."""
    image = pytest.importorskip("PIL.Image")
    header, _, data = url.partition(",")
    assert header == "data:image/png;base64"
    return np.asarray(image.open(io.BytesIO(base64.b64decode(data))))


def test_a_small_image_is_enlarged_and_scaled_to_the_full_range() -> None:
    image = torch.tensor([[-3.0, -1.0], [1.0, 5.0]])[None]
    pixels = decoded(thumbnail(image))
    assert pixels.shape == (48, 48)
    assert [pixels[0, 0], pixels[0, -1], pixels[-1, 0], pixels[-1, -1]] == [0, 64, 128, 255]


def test_a_large_image_is_thinned_and_keeps_its_colours() -> None:
    image = torch.zeros(3, 300, 200)
    image[0, :, :100] = 1.0  # the left half is red
    pixels = decoded(thumbnail(image))
    assert max(pixels.shape[:2]) <= 96
    assert pixels.shape[2] == 3
    assert pixels[0, 0].tolist() == [255, 0, 0]
    assert pixels[0, -1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("value", [0.0, float("nan"), 7.0])
def test_constant_images_and_nan_do_not_fail(value: float) -> None:
    assert decoded(thumbnail(torch.full((1, 8, 8), value))).max() == 0
