"""Which arithmetic a device is good at, and how small a number each route can still see."""

import math

import torch
from torch import Tensor

from interpress.errors import ArgumentError, DataError

EPS64 = torch.finfo(torch.float64).eps
EPS32 = torch.finfo(torch.float32).eps

# Squares must stay finite and normal in float64, with room for sums over many rows.
LARGEST, SMALLEST = 1e140, 1e-140

CHAIN = 512  # rows (or one per column) of one product in double precision, on a CPU

# NVIDIA chips whose float64 units run at half the float32 rate (P100, V100, A100, H100/H200, B200).
# Every other one runs float64 at 1/32 or 1/64 of it, or slower.
_FAST_FLOAT64 = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}
_FAST_FLOAT64_AMD = ("gfx908", "gfx90a", "gfx940", "gfx941", "gfx942")


def has_float64(device: torch.device) -> bool:
    """Whether the device can hold float64 at all (Apple's MPS cannot)."""
    return device.type != "mps"


def exact_dtype(device: torch.device) -> torch.dtype:
    """The most precise floating type the device has."""
    return torch.float64 if has_float64(device) else torch.float32


def has_fast_float64(device: torch.device) -> bool:
    """Whether float64 matrix products cost only a small multiple of float32 ones."""
    if device.type == "cpu":
        return True
    if device.type != "cuda":
        return False
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return properties.gcnArchName.startswith(_FAST_FLOAT64_AMD)
    return (properties.major, properties.minor) in _FAST_FLOAT64


def gram_floor(n: int, additions: int = 1, rows: int = 1) -> float:
    """Smallest |r_kk / r_11| a float64 Gram matrix of n columns still resolves.

    The Gram matrix holds r_kk**2, with rounding of a few sqrt(n) * eps, and on some processors of
    up to eps / 6 for every row of one product, which they add up one after the other. The square
    root of that is about 2e-7, little more than the rounding present in float32 activations.
    """
    in_a_row = min(rows, max(n, CHAIN)) / 6.0
    return math.sqrt((4.0 * math.sqrt(n) + math.sqrt(additions) + in_a_row) * EPS64)


def root_floor(n: int, additions: int = 1) -> float:
    """Smallest |r_kk / r_11| that many orthogonal factorizations in float64 still resolve."""
    return (4.0 * math.sqrt(n) + additions) * EPS64


def largest_magnitude(matrix: Tensor) -> float:
    """The infinity norm of all entries, NaN if one is; faster on a CPU than torch's own."""
    if not matrix.numel():
        return 0.0
    low, high = torch.aminmax(matrix)
    return float(torch.maximum(high, -low))


def check_range(matrix: Tensor, *, squared: bool = False) -> None:
    """Refuse NaN and Inf; with ``squared``, also numbers whose squares would leave float64."""
    largest = largest_magnitude(matrix)
    if not math.isfinite(largest):
        bad = (~matrix.isfinite()).nonzero()
        row, column = bad[0].tolist()
        raise DataError(
            f"the matrix holds {len(bad)} NaN or Inf entries, the first at row {row}, column "
            f"{column}; drop or repair them"
        )
    if squared and (largest > LARGEST or 0 < largest < SMALLEST):
        raise DataError(
            f"the largest magnitude is {largest:.1e}, whose square leaves float64; scale the data "
            f"into [{SMALLEST:g}, {LARGEST:g}] (the interpolation matrix does not change)"
        )


def as_square(matrix: Tensor, n: int, name: str) -> Tensor:
    """``matrix``, if it is a finite float n x n one."""
    if not isinstance(matrix, Tensor) or not matrix.is_floating_point():
        raise ArgumentError(f"{name} is not a float tensor; pass one of shape ({n}, {n})")
    if matrix.shape != (n, n):
        raise ArgumentError(f"{name} has shape {tuple(matrix.shape)}; it must be ({n}, {n})")
    if not bool(matrix.isfinite().all()):
        raise ArgumentError(f"{name} holds NaN or Inf; repair what it was made from")
    return matrix.detach()
