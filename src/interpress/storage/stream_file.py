"""Save a `FactorStream` to one file, to continue it later or to merge it in another process."""

from __future__ import annotations

import os

import torch

from interpress.errors import DataError, StorageError
from interpress.files.tensor_file import load_tensors, save_tensors
from interpress.linalg.stream import FactorStream

_KIND = "factor-stream"


def save_stream(stream: FactorStream, path: str | os.PathLike[str]) -> None:
    """Write the state of a stream to a safetensors file."""
    tensors, fields = stream.state()
    save_tensors(path, _KIND, tensors, fields)


def load_stream(
    path: str | os.PathLike[str], *, device: torch.device | str | None = None
) -> FactorStream:
    """Return a stream that continues exactly where the saved one stopped."""
    tensors, fields = load_tensors(path, _KIND)
    try:
        return FactorStream.from_state(tensors, fields, device=device)
    except DataError as error:
        raise StorageError(f"{path}: {error}; save the stream again") from error
