"""Arrays of model inputs, as they come from NumPy and safetensors files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from interpress.cli.data_files.data_file import LABEL_NAMES, DataFile
from interpress.cli.data_options import DataOptions
from interpress.errors import DataError


class ArrayFile(DataFile):
    """One array of model inputs, with examples along the first dim."""

    if_empty = "give examples along the first dim"

    def __init__(self, options: DataOptions) -> None:
        arrays = self.read(options.path)
        self._values = _choose(options.path, arrays, options.key)
        _check_values(options.path, self._values)
        self.labels = _labels(options.path, arrays, len(self._values))

    @abstractmethod
    def read(self, path: Path) -> Mapping[str, Tensor]:
        """Return the arrays of the file by name."""

    @property
    def count(self) -> int:
        """The number of examples."""
        return len(self._values)

    def inputs(self, indices: Sequence[int]) -> Tensor:
        """Return some examples."""
        return self._values[torch.as_tensor(indices)]


def _choose(path: Path, arrays: Mapping[str, Tensor], key: str | None) -> Tensor:
    """Return the array called `key`, or the only one that does not hold labels."""
    if key is not None:
        if key not in arrays:
            raise DataError(f"{path} has no {key!r}; it holds {', '.join(sorted(arrays))}")
        return arrays[key]
    names = [name for name in arrays if name not in LABEL_NAMES]
    if len(names) > 1:
        raise DataError(f"{path} holds {', '.join(sorted(names))}; choose one with --key")
    if not names:
        raise DataError(
            f"{path} holds no inputs but {', '.join(sorted(arrays)) or 'nothing'}; save the "
            "model's inputs under another name, such as 'inputs'"
        )
    return arrays[names[0]]


def _check_values(path: Path, values: Tensor) -> None:
    if values.ndim < 2:
        raise DataError(
            f"{path} holds an array of shape {tuple(values.shape)}; give examples along the first "
            "dim and features along the others"
        )
    if values.is_complex():
        raise DataError(f"{path} holds complex numbers; give real numbers")
    if values.is_floating_point() and not bool(values.isfinite().all()):
        raise DataError(f"{path} holds NaN or Inf; remove those examples")
    if values.dtype == torch.uint8:
        raise DataError(
            f"{path} holds bytes; save the floating-point numbers that the model takes, or give a "
            "folder of images"
        )


def _labels(path: Path, arrays: Mapping[str, Tensor], examples: int) -> Tensor | None:
    labels = next((arrays[name] for name in LABEL_NAMES if name in arrays), None)
    if labels is None:
        return None
    if labels.ndim != 1 or len(labels) != examples:
        raise DataError(
            f"{path}: labels of shape {tuple(labels.shape)} for {examples} examples; give one "
            "label per example"
        )
    if labels.is_floating_point() or bool((labels < 0).any()):
        raise DataError(f"{path}: labels must be whole numbers from 0; correct or remove them")
    return labels.long()
