"""`Batches`: the examples of a data file in batches, readable any number of times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interpress.cli.data_files.data_file import DataFile
from interpress.cli.data_files.registry import kind_of_file, open_data_file
from interpress.cli.data_options import DataOptions
from interpress.cli.failing import warn
from interpress.cli.model_options import ModelOptions
from interpress.cli.timm_models import PREFIX, prepared_like_timm

_CACHE_BYTES = 2**30  # prepared batches that are kept in memory instead of prepared again


def open_batches(data: DataOptions, model: ModelOptions) -> Batches:
    """Return the examples that the options describe.

    Text uses the tokenizer in the model's folder, unless the options name another. Images for a
    model of timm are prepared as timm does, unless the options say otherwise.
    """
    if model.name.startswith(PREFIX) and kind_of_file(data).holds_images:
        data = prepared_like_timm(data, model.name)
    if data.tokenizer is None:
        data = replace(data, tokenizer=Path(model.name))
    return Batches(open_data_file(data), data)


class Batches:
    """At most `limit` examples of a data file, drawn at random and kept in order."""

    def __init__(self, file: DataFile, options: DataOptions) -> None:
        chosen = torch.arange(file.count)
        if 0 < options.limit < file.count:
            generator = torch.Generator().manual_seed(options.seed)
            chosen = torch.randperm(file.count, generator=generator)[: options.limit].sort().values
        self._file = file
        self._indices = chosen.split(options.batch)  # of every batch
        self._cache: dict[int, Any] = {}
        self._cache_left = _CACHE_BYTES
        self.count = len(chosen)

    def labels(self) -> Tensor | None:
        """Return one label per example, or None if they are unknown."""
        labels = self._file_labels()
        return None if labels is None else labels[torch.cat(list(self._indices))]

    def with_labels(self) -> Iterable[Any]:
        """Return the batches with their labels, or this object if the labels are unknown.

        A batch becomes `(inputs, labels)`, or a dict with an entry "labels".
        """
        labels = self._file_labels()
        if labels is None:
            return self
        pairs: list[Any] = []
        for inputs, indices in zip(self, self._indices, strict=True):
            batch_labels = labels[indices]
            is_dict = isinstance(inputs, dict)
            pairs.append({**inputs, "labels": batch_labels} if is_dict else (inputs, batch_labels))
        return pairs

    def _file_labels(self) -> Tensor | None:
        """Return the labels of all examples; warn if there are some that cannot be used."""
        if self._file.labels_problem is not None:
            warn(self._file.labels_problem)
        return self._file.labels

    def __len__(self) -> int:
        return len(self._indices)

    def __iter__(self) -> Iterator[Any]:
        for number in range(len(self._indices)):
            yield self._batch(number)

    def _batch(self, number: int) -> Any:
        if number in self._cache:
            return self._cache[number]
        inputs = self._file.inputs(self._indices[number].tolist())
        tensors = inputs.values() if isinstance(inputs, dict) else [inputs]
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if size <= self._cache_left:
            self._cache_left -= size
            self._cache[number] = inputs
        return inputs
