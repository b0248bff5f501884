"""`Batches`: the examples of a data file in batches, readable any number of times."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from interpress.cli.data_files.data_file import DataFile
from interpress.cli.data_files.registry import kind_of_file, open_data_file
from interpress.cli.data_files.running_text import USUAL_LENGTH
from interpress.cli.data_options import DEFAULT_LIMIT, DataOptions
from interpress.cli.failing import advise_if_misfit, note, warn
from interpress.cli.model_options import ModelOptions
from interpress.cli.timm_models import PREFIX, prepared_like_timm
from interpress.errors import ArgumentError, DataError

_CACHE_BYTES = 2**30  # prepared batches that are kept in memory instead of prepared again


def open_batches(
    data: DataOptions, model: ModelOptions, network: nn.Module | None = None
) -> Batches:
    """Return the examples that the options describe, for a network that takes them.

    Text uses the tokenizer in the model's folder, unless the options name another. Images for a
    model of timm are prepared as timm does, unless the options say otherwise.
    """
    if model.name.startswith(PREFIX) and kind_of_file(data).holds_images:
        data = prepared_like_timm(data, model.name)
    if data.tokenizer is None:
        data = replace(data, tokenizer=Path(model.name))
    if data.text is not None and network is not None:
        data = replace(data, length=_fitting_length(data.length, network))
    file = open_data_file(data)
    advise_if_misfit(file.if_misfit)
    if network is not None:
        _check_names(data.path, file.input_names, network)
    batches = Batches(file, data)
    if data.limit == DEFAULT_LIMIT < file.count:
        note(
            f"{batches.count:,} of the {file.count:,} examples of {data.path} are used, drawn at "
            "random; --limit 0 uses all"
        )
    return batches


def _fitting_length(asked: int | None, network: nn.Module) -> int | None:
    """Return how many tokens an example of running text has, at most as many as the model's config
    has positions for; None leaves it to the tokenizer."""
    config = getattr(network, "config", None)
    positions = getattr(config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        return asked
    if asked is not None and asked > positions:
        raise ArgumentError(
            f"--length {asked} is more than the {positions} positions of {type(network).__name__}; "
            f"give at most {positions}"
        )
    return min(USUAL_LENGTH, positions) if asked is None else asked


def _check_names(path: Path, names: Sequence[str], network: nn.Module) -> None:
    """Raise if the names of keyword inputs are not those of the arguments of the forward."""
    parameters = inspect.signature(network.forward).parameters.values()
    if not names or any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    required = [p.name for p in parameters if p.name in known and p.default is p.empty]
    takes = f"the forward of {type(network).__name__} takes {', '.join(known) or 'no names'}"
    for name in names:
        if name not in known:
            raise DataError(
                f"{path} holds several arrays, which are keyword inputs, and one is called "
                f"{name!r}, but {takes}; rename or remove it, or choose one array with --key"
            )
    for name in required:
        if name not in names:
            raise DataError(f"{path} has no array {name!r}, but {takes}; add it")


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

    def preprocessing(self) -> dict[str, Any]:
        """Return what is done to the raw inputs, and the shape of one prepared example."""
        record = self._file.preprocessing()
        if record["inputs"] == "text":
            return record
        inputs = self._batch(0)
        if isinstance(inputs, dict):
            return {**record, "shape": {name: list(t.shape[1:]) for name, t in inputs.items()}}
        return {**record, "shape": list(inputs.shape[1:])}

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
