"""What users pass as calibration data, as an iterable of batches that can be read repeatedly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, Subset

from interpress.data.inputs import inputs_in, plain_batch
from interpress.errors import ArgumentError
from interpress.graph.example import Example

BATCH = 100
"""Examples per batch where the source does not say."""


def rereadable(source: Any, model: nn.Module) -> Iterable[Any]:
    """Return the source as an iterable of batches in a fixed order."""
    if isinstance(source, str | bytes) or source is None:
        raise ArgumentError(
            f"the calibration data are a {type(source).__name__}; give a tensor, a DataLoader or "
            "an iterable of batches"
        )
    if isinstance(source, Dataset) and not isinstance(source, IterableDataset):
        return DataLoader(source, batch_size=BATCH)
    if isinstance(source, DataLoader) and isinstance(source.sampler, RandomSampler):
        return _in_order(source)
    if isinstance(source, tuple):
        _check_tuple(source, model)
    if isinstance(source, Tensor | Mapping | tuple | Example) or type(source).__name__ == "ndarray":
        return SplitBatch(source)
    if not isinstance(source, Iterable):
        raise ArgumentError(
            f"the calibration data are a {type(source).__name__}, which cannot be iterated over; "
            "give a tensor, a DataLoader or an iterable of batches"
        )
    return list(source) if isinstance(source, Iterator) else source


def _check_tuple(source: tuple[Any, ...], model: nn.Module) -> None:
    """Refuse a tuple that looks like several batches: a tuple is one batch, inputs first."""
    extra = source[inputs_in(source, model) :]
    alike = [t for t in extra if isinstance(t, Tensor) and t.is_floating_point() and t.ndim > 1]
    if alike and isinstance(source[0], Tensor) and alike[0].shape[1:] == source[0].shape[1:]:
        raise ArgumentError(
            f"the calibration data are a tuple of {len(source)} tensors of the same shape; a tuple "
            "is read as one batch (inputs first, then labels), so pass a list of batches instead"
        )


def _in_order(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Return the same loader without shuffling, over as many examples."""
    dataset, sampler = loader.dataset, loader.sampler
    count = len(sampler)  # type: ignore[arg-type]
    if count < len(dataset):  # type: ignore[arg-type]
        dataset = Subset(dataset, range(count))
    return DataLoader(
        dataset,
        batch_size=loader.batch_size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
        worker_init_fn=loader.worker_init_fn,
    )


class SplitBatch:
    """One large batch, read in batches of `BATCH` examples."""

    def __init__(self, whole: Any) -> None:
        self._is_example = isinstance(whole, Example)
        tree = (whole.args, dict(whole.kwargs)) if self._is_example else plain_batch(whole)
        self._leaves, self._spec = pytree.tree_flatten(tree)

    def count(self) -> int:
        """Return how many examples there are."""
        sizes = [leaf.shape[0] for leaf in self._leaves if isinstance(leaf, Tensor) and leaf.ndim]
        return sizes[0] if sizes else 0

    def __len__(self) -> int:
        return -(-self.count() // BATCH)

    def __iter__(self) -> Iterator[Any]:
        size = self.count()
        for start in range(0, size, BATCH):
            part = [
                leaf[start : start + BATCH]
                if isinstance(leaf, Tensor) and leaf.ndim and leaf.shape[0] == size
                else leaf
                for leaf in self._leaves
            ]
            batch = pytree.tree_unflatten(part, self._spec)
            yield Example(*batch) if self._is_example else batch


def count_examples(source: Any) -> int | None:
    """Return how many examples a source has, if that is known without reading them."""
    if isinstance(source, SplitBatch):
        return source.count()
    if isinstance(source, DataLoader):
        length = getattr(source.sampler, "__len__", None)
        return None if length is None else int(length())
    if not isinstance(source, list):
        return None
    total = 0
    for batch in source:
        is_example = isinstance(batch, Example)
        leaves = batch.tensors() if is_example else pytree.tree_leaves(plain_batch(batch))
        sizes = [leaf.shape[0] for leaf in leaves if isinstance(leaf, Tensor) and leaf.ndim]
        if not sizes:
            return None
        total += sizes[0]
    return total
