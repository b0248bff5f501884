"""Thumbnails of input images as PNG data URLs."""

from __future__ import annotations

import base64
import struct
import zlib

from torch import Tensor

_SMALLEST, _LARGEST = 48, 96  # pixels of the longer side


def thumbnail(image: Tensor) -> str:
    """Return an image (channels, height, width) of any value range as a small PNG."""
    image = image.detach().float().cpu().nan_to_num()
    low, high = image.min(), image.max()
    pixels = ((image - low) / (high - low).clamp(min=1e-12) * 255).round().byte()
    stride = max(1, -(-max(pixels.shape[1:]) // _LARGEST))
    pixels = pixels[:, ::stride, ::stride]
    larger = max(1, _SMALLEST // max(pixels.shape[1:]))
    pixels = pixels.repeat_interleave(larger, 1).repeat_interleave(larger, 2)
    return "data:image/png;base64," + base64.b64encode(_png(pixels)).decode()


def _png(pixels: Tensor) -> bytes:
    """Return the PNG file of pixels (1 or 3, height, width)."""
    channels, height, width = pixels.shape
    rows = pixels.permute(1, 2, 0).reshape(height, -1).numpy()
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
