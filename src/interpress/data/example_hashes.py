"""Compare two sets of data by a hash of every example."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from interpress.data.batches import batch_size
from interpress.data.calibration_set import CalibrationSet
from interpress.graph.example import Example

_BYTES = 8  # of a hash; some of a million examples equal some of another million by chance 1e-7
_MOST = 100_000  # hashes that a file holds


class Copies(NamedTuple):
    """Copies among evaluation examples."""

    in_common: int
    """How many of them helped to make the network."""
    distinct: int
    """How many different ones there are."""


def hashes_of(data: CalibrationSet) -> list[bytes]:
    """Read the data and return a hash of every example.

    Examples are the same if all their inputs are equal, in the dtype of the model. Labels do not
    count.
    """
    return [found for example in data.batches() for found in _hashes(example)]


def find_copies(known: Collection[bytes], evaluation: CalibrationSet) -> Copies:
    """Read the data and compare the examples with hashes that are known."""
    known, hashes = set(known), hashes_of(evaluation)
    return Copies(sum(found in known for found in hashes), len(set(hashes)))


def as_text(hashes: Collection[bytes]) -> str | None:
    """Return different hashes as text for a file; None if they are too many."""
    different = sorted(set(hashes))
    return base64.b64encode(b"".join(different)).decode() if len(different) <= _MOST else None


def from_text(text: str | None) -> set[bytes] | None:
    """Return the hashes that `as_text` wrote; None if it wrote none."""
    if text is None:
        return None
    packed = base64.b64decode(text)
    return {packed[start : start + _BYTES] for start in range(0, len(packed), _BYTES)}


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
