"""`.npy`: one NumPy array."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from interpress.cli.data_files.array_file import ArrayFile
from interpress.cli.data_files.numpy_arrays import read_numpy
from interpress.cli.data_files.registry import data_file


@data_file("npy")
class NpyFile(ArrayFile):
    """One NumPy array of model inputs."""

    def read(self, path: Path) -> dict[str, Tensor]:
        """Return the array under the name "array"."""
        return read_numpy(path)
