"""`.safetensors`: several tensors by name."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from interpress.cli.data_files.array_file import ArrayFile
from interpress.cli.data_files.registry import data_file
from interpress.errors import StorageError


@data_file("safetensors")
class SafetensorsFile(ArrayFile):
    """Tensors by name: the model inputs, and labels if there are any."""

    def read(self, path: Path) -> dict[str, Tensor]:
        """Return the tensors by name."""
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise StorageError(f"{path} cannot be read ({error}); save it again") from error
