"""Name the examples that hold NaN or Inf, if they are the reason of an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from interpress.data.batches import batch_size
from interpress.data.calibration_set import CalibrationSet
from interpress.errors import DataError
from interpress.graph.example import Example


@contextmanager
def inputs_blamed(data: CalibrationSet | None) -> Iterator[None]:
    """Let an error about the data name the first example that holds NaN or Inf, if there is one.

    The inputs are read again only after an error. A model may well replace NaN in its inputs.
    """
    try:
        yield
    except DataError as error:
        if data is None or (fault := _fault(data)) is None:
            raise
        raise DataError(fault) from error


def _fault(data: CalibrationSet) -> str | None:
    """Return what is wrong with the inputs; None if all are finite."""
    count = read = 0
    first = ""
    for batch in data.batches():
        bad = _bad_examples(batch)
        count += int(bad.sum())
        if not first and bool(bad.any()):
            first = f"calibration example {read + int(bad.nonzero()[0, 0])} (counted from 0)"
        read += batch_size(batch)
    if not first:
        return None
    verb = "holds NaN or Inf" if count == 1 else f"is the first of {count} that hold NaN or Inf"
    return f"{first} {verb}; drop or repair {'it' if count == 1 else 'them'}"


def _bad_examples(batch: Example) -> Tensor:
    """Return (examples,) which hold NaN or +Inf; -Inf is a common value of masks."""
    size = batch_size(batch)
    bad = torch.zeros(size, dtype=torch.bool)
    for tensor in batch.tensors():
        if tensor.is_floating_point() and tensor.ndim and len(tensor) == size:
            bad |= (tensor.isnan() | tensor.isposinf()).reshape(size, -1).any(1).cpu()
    return bad
