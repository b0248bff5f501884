"""`.npz`: several NumPy arrays by name."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from interpress.cli.data_files.array_file import ArrayFile
from interpress.cli.data_files.numpy_arrays import read_numpy
from interpress.cli.data_files.registry import data_file


@data_file("npz")
class NpzFile(ArrayFile):
    """NumPy arrays by name: the model inputs, and labels if there are any."""

    def read(self, path: Path) -> dict[str, Tensor]:
        """Return the arrays by name."""
        return read_numpy(path)
