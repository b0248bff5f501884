"""Compare two sets of data by a hash of every example."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from interpress.data.batches import batch_size
from interpress.data.calibration_set import CalibrationSet
from interpress.graph.example import Example

_BYTES = 16  # of a hash; two of a billion different examples have the same one by chance 1e-20


class Copies(NamedTuple):
    """Copies among evaluation examples."""

    in_common: int
    """How many of them are calibration examples too."""
    distinct: int
    """How many different ones there are."""


def find_copies(calibration: CalibrationSet, evaluation: CalibrationSet) -> Copies:
    """Read both sets and compare their examples.

    Examples are the same if all their inputs are equal, in the dtype of the model. Labels do not
    count.
    """
    known = {found for example in calibration.batches() for found in _hashes(example)}
    hashes = [found for example in evaluation.batches() for found in _hashes(example)]
    return Copies(sum(found in known for found in hashes), len(set(hashes)))


def count_distinct(data: CalibrationSet) -> int:
    """Read the data and return how many different examples they hold."""
    return len({found for example in data.batches() for found in _hashes(example)})


def _hashes(batch: Example) -> Iterator[bytes]:
    """Yield a hash of every example of a batch; tensors without the batch dim are left out."""
    size = batch_size(batch)
    tensors = [tensor for tensor in batch.tensors() if tensor.ndim and tensor.shape[0] == size]
    columns = [_rows(tensor) for tensor in tensors]
    kinds = [f"{tensor.dtype} {tuple(tensor.shape[1:])}".encode() for tensor in tensors]
    for index in range(size):
        total = hashlib.blake2b(digest_size=_BYTES)
        for kind, rows in zip(kinds, columns, strict=True):
            total.update(kind)
            total.update(rows[index].numpy().data)
        yield total.digest()


def _rows(tensor: Tensor) -> list[Tensor]:
    """Return the bytes of every row of a tensor."""
    plain = tensor.detach().cpu().contiguous()
    return [row.reshape(-1).view(torch.uint8) for row in plain]
