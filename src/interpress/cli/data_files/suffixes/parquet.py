"""`.parquet`: a column of encoded images, as dataset hubs store them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from interpress.cli.data_files.data_file import LABEL_NAMES, DataFile
from interpress.cli.data_files.image_preparation import IF_MISFIT, ImagePreparation
from interpress.cli.data_files.registry import data_file
from interpress.cli.data_options import DataOptions
from interpress.errors import ArgumentError, DataError, StorageError


@data_file("parquet")
class ParquetFile(DataFile):
    """A column of encoded images, and a column of labels if there is one."""

    holds_images = True
    if_misfit = IF_MISFIT
    if_empty = "give a file with rows"

    def __init__(self, options: DataOptions) -> None:
        self._path = options.path
        self._preparation = ImagePreparation(options)
        table = _read_table(options)
        self._column = table.column(_image_column(options, table))
        label = next((name for name in LABEL_NAMES if name in table.column_names), None)
        if label is not None:
            self._read_labels(label, table.column(label))

    def _read_labels(self, name: str, column: Any) -> None:
        """Read whole numbers as labels; a row without one gets -100, which is ignored."""
        from pyarrow import types

        if types.is_integer(column.type):
            self.labels = torch.tensor(column.fill_null(-100).to_pylist()).long()
        else:
            self.labels_problem = (
                f"{self._path}: column {name!r} holds {column.type} instead of whole numbers, so "
                "there are no labels; replace its values by class numbers to see accuracy"
            )

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self._column)

    def inputs(self, indices: Sequence[int]) -> Tensor:
        """Return prepared images (batch, channels, height, width)."""
        names = [f"row {index} of {self._path}" for index in indices]
        images: list[Any] = []
        for index, name in zip(indices, names, strict=True):
            cell = self._column[index].as_py()
            images.append(cell.get("bytes") if isinstance(cell, dict) else cell)
            if not images[-1]:
                raise DataError(f"{name} holds no image bytes; remove the row")
        return self._preparation.batch(images, names)

    def preprocessing(self) -> dict[str, Any]:
        """Return how images are decoded, resized and normalised."""
        return self._preparation.record()


def _read_table(options: DataOptions) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ArgumentError("Parquet needs pyarrow: pip install 'interpress[images]'") from error
    try:
        return pyarrow.parquet.read_table(options.path)
    except Exception as error:
        raise StorageError(
            f"{options.path} is not a readable Parquet file ({error}); save it again"
        ) from error


def _image_column(options: DataOptions, table: Any) -> str:
    """Return the column called `--key`, or the first one that holds bytes."""
    columns = ", ".join(table.column_names)
    if options.key is None:
        name = next((field.name for field in table.schema if _holds_bytes(field.type)), None)
        if name is None:
            raise DataError(
                f"{options.path} has no column of image bytes; its columns are {columns}"
            )
        return str(name)
    if options.key not in table.column_names:
        raise DataError(f"{options.path} has no column {options.key!r}; its columns are {columns}")
    if not _holds_bytes(table.schema.field(options.key).type):
        raise DataError(
            f"{options.path}: column {options.key!r} holds no image bytes; choose another with "
            "--key"
        )
    return options.key


def _holds_bytes(column_type: Any) -> bool:
    from pyarrow import types

    if types.is_struct(column_type):
        return any(field.name == "bytes" for field in column_type)
    return bool(types.is_binary(column_type) or types.is_large_binary(column_type))
