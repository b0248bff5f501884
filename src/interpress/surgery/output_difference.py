"""How far the outputs of two networks are apart, column by column."""

from __future__ import annotations

import torch
from torch import Tensor

_COLUMNS = 2**17  # of an output, compared at once
_SAMPLED_COLUMNS = 2**20  # from which the usual variation of a column is estimated
_CONSTANT = 1e-12  # variation relative to its size below which a column counts as constant
_ROUNDING = 64  # units in the last place by which a value may differ


def difference(outputs: list[Tensor], expected: list[Tensor]) -> float:
    """Return the largest relative difference between floating-point outputs; inf if it is NaN.

    Every column of an output (an index of all dims but the batch) is compared by itself, relative
    to how much it varies over the batch. A norm over all columns would let one huge constant, such
    as a mask of -1e9, hide any error in the others.
    """
    if [a.shape for a in outputs] != [b.shape for b in expected]:
        return float("inf")
    largest = 0.0
    for a, b in zip(outputs, expected, strict=True):
        if a.is_floating_point() and a.numel():
            eps = torch.finfo(a.dtype).eps
            a, b = _in_one_place(a, b)
            largest = max(largest, _column_difference(a, b, eps))
    return largest


def _in_one_place(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return two tensors on one device; on the CPU, unless both are on the same CUDA device."""
    if a.device == b.device and a.device.type == "cuda":  # other devices may lack float64
        return a, b
    return a.cpu(), b.cpu()


def _column_difference(a: Tensor, b: Tensor, eps: float) -> float:
    """Return the largest difference of a column, relative to its own or the median variation."""
    a, b = (t.reshape(len(t), -1) if t.ndim > 1 else t.reshape(1, -1) for t in (a, b))
    step = -(-b.shape[1] // _SAMPLED_COLUMNS)  # a language model has millions of columns
    size, variation, varies = _variation(b[:, ::step].double())
    typical = variation[varies].median() if bool(varies.any()) else size.median()
    largest = 0.0
    for columns in zip(a.split(_COLUMNS, 1), b.split(_COLUMNS, 1), strict=True):
        part, expected = (values.double() for values in columns)
        same = part == expected  # masked positions may be infinite in both
        distance = torch.where(same, 0.0, (part - expected).abs())
        if not bool(distance.isfinite().all()):
            return float("inf")
        size, variation, varies = _variation(expected)
        # a value of this size cannot be represented more exactly, however little it varies
        distance = (distance.amax(0) - _ROUNDING * eps * size).clamp(min=0)
        scale = torch.maximum(torch.where(varies, variation, 0.0), typical)
        ratio = distance / scale.clamp(min=torch.finfo(torch.float64).tiny)
        largest = max(largest, float(ratio.amax()))
    return largest


def _variation(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the size and the variation of every column, and whether it varies at all."""
    finite = torch.where(values.isfinite(), values, 0.0)
    size = finite.abs().amax(0)
    variation = finite.amax(0) - finite.amin(0) if len(values) > 1 else size
    return size, variation, variation > _CONSTANT * size
