"""Check the outputs of the original network on calibration batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from interpress.data.batches import batch_size
from interpress.errors import CaptureError, DataError
from interpress.graph.example import Example
from interpress.graph.model_state import output_tensors
from interpress.spaces.spaces import Spaces

_SAME_OUTPUT = 1e-3  # relative difference that faster kernels may cause


def check_not_nan(outputs: Iterable[Tensor], number: int) -> None:
    """Refuse a network whose outputs on calibration batch `number` are NaN."""
    for output in outputs:
        if output.is_floating_point() and bool(output.isnan().any()):
            bad = int(output.isnan().flatten(1).any(1).sum()) if output.ndim > 1 else 1
            raise DataError(
                f"the model's output is NaN for {bad} examples of calibration batch {number}; "
                "drop or repair these examples, or run the model in float32"
            )


def check_same_outputs(spaces: Spaces, example: Example, outputs: Sequence[Tensor]) -> None:
    """Refuse a program that does not compute what the model computes on a calibration batch.

    It was captured on a few examples. A model that branches on the batch size runs other operators
    on a full batch.
    """
    expected = output_tensors(spaces.program.model, example)
    for output, value in zip(outputs, expected, strict=False):
        if output.shape == value.shape and _nearly_equal(output, value):
            continue
        captured = spaces.program.example.tensors()[0].shape[0]
        raise CaptureError(
            f"on a calibration batch of {batch_size(example)} examples the model does not compute "
            f"what it computed on the {captured} examples it was captured with; remove branches on "
            f"the batch size or on random numbers, or calibrate in batches of {captured}"
        )


def _nearly_equal(output: Tensor, value: Tensor) -> bool:
    """Return whether two outputs are equal up to the rounding of faster kernels."""
    if not value.is_floating_point():
        return True  # scores that are nearly equal may be decided differently
    difference = size = 0.0
    examples = zip(output, value, strict=True) if value.ndim else [(output, value)]
    for one, other in examples:  # one by one, because the scores of a language model are many
        a, b = one.double(), other.double()
        same = (a == b) | (a.isnan() & b.isnan())
        difference += float(torch.where(same, 0.0, a - b).square().sum())
        size += float(b.square().sum())
    tolerance = torch.finfo(value.dtype).eps ** 0.5
    return difference**0.5 <= max(_SAME_OUTPUT, tolerance) * size**0.5
