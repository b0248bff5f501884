"""Arrays of model inputs, as they come from NumPy and safetensors files.

One array is the only input of the model. Several are keyword inputs: the name of an array is that
of an argument of the model's forward.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from interpress.cli.data_files.data_file import LABEL_NAMES, DataFile
from interpress.cli.data_options import DataOptions
from interpress.errors import DataError
from interpress.tables.text_table import counted


class ArrayFile(DataFile):
    """Arrays of model inputs, with examples along the first dim, and labels if there are any."""

    if_empty = "give examples along the first dim"

    def __init__(self, options: DataOptions) -> None:
        arrays = self.read(options.path)
        self._inputs = _choose(options.path, arrays, options.key)
        self._is_single = len(self._inputs) == 1
        for name, values in self._inputs.items():
            array = f"{options.path}" + ("" if self._is_single else f": {name!r}")
            _check_values(array, values, self._is_single)
        _check_lengths(options.path, self._inputs)
        self.labels = _labels(options.path, arrays, self.count)

    @abstractmethod
    def read(self, path: Path) -> Mapping[str, Tensor]:
        """Return the arrays of the file by name."""

    @property
    def count(self) -> int:
        """The number of examples."""
        return len(next(iter(self._inputs.values())))

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of keyword inputs."""
        return () if self._is_single else tuple(self._inputs)

    def inputs(self, indices: Sequence[int]) -> Tensor | dict[str, Tensor]:
        """Return some examples: a tensor, or several by name."""
        rows = {name: values[torch.as_tensor(indices)] for name, values in self._inputs.items()}
        return next(iter(rows.values())) if self._is_single else rows


def _choose(path: Path, arrays: Mapping[str, Tensor], key: str | None) -> dict[str, Tensor]:
    """Return the array called `key`, or all that do not hold labels."""
    if key is not None:
        if key not in arrays:
            raise DataError(f"{path} has no {key!r}; it holds {', '.join(sorted(arrays))}")
        return {key: arrays[key]}
    inputs = {name: values for name, values in arrays.items() if name not in LABEL_NAMES}
    if not inputs:
        raise DataError(
            f"{path} holds no inputs but {', '.join(sorted(arrays)) or 'nothing'}; save the "
            "model's inputs under another name, such as 'inputs'"
        )
    return inputs


def _check_values(array: str, values: Tensor, is_single: bool) -> None:
    """Refuse what no model takes; one of several inputs may be one number per example."""
    least = 2 if is_single else 1
    if values.ndim < least:
        raise DataError(
            f"{array} has shape {tuple(values.shape)}; give examples along the first dim"
            + " and features along the others" * is_single
        )
    if values.is_complex():
        raise DataError(f"{array} holds complex numbers; give real numbers")
    if values.is_floating_point() and not bool(values.isfinite().all()):
        is_bad = ~values.flatten(1).isfinite().all(1) if values.ndim > 1 else ~values.isfinite()
        bad = is_bad.nonzero()[:, 0].tolist()
        raise DataError(
            f"{counted(len(bad), 'example')} of {array} with NaN or Inf, the first is example "
            f"{bad[0]} (counted from 0); remove what has no finite values"
        )
    if values.dtype == torch.uint8:
        raise DataError(
            f"{array} holds bytes; save the floating-point numbers that the model takes, or give a "
            "folder of images"
        )


def _check_lengths(path: Path, inputs: Mapping[str, Tensor]) -> None:
    """Raise if keyword inputs are not of the same examples."""
    first, *others = inputs
    for name in others:
        if len(inputs[name]) != len(inputs[first]):
            raise DataError(
                f"{path}: {first!r} has {len(inputs[first])} examples and {name!r} has "
                f"{len(inputs[name])}; several arrays are keyword inputs of the model, so give "
                "every example in each, or choose one array with --key"
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
