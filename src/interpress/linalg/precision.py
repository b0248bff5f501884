"""Floating-point properties of devices, and the smallest values that each computation resolves."""

import math

import torch
from torch import Tensor

from interpress.errors import ArgumentError, DataError

EPS64 = torch.finfo(torch.float64).eps
EPS32 = torch.finfo(torch.float32).eps

# Range of magnitudes whose squares stay finite and normal in float64, even summed over many rows.
LARGEST, SMALLEST = 1e140, 1e-140

# Rows of one float64 Gram product on a CPU (or one row per column, if that is more). Some
# processors add the rows one after the other, so this bounds the growth of the rounding error.
CHAIN = 512

# Compute capabilities of the NVIDIA GPUs whose float64 rate is half the float32 rate (P100, V100,
# A100, H100/H200, B200). All other NVIDIA GPUs run float64 at 1/32 of it or slower.
_FAST_FLOAT64 = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}
_FAST_FLOAT64_AMD = ("gfx908", "gfx90a", "gfx940", "gfx941", "gfx942")


def has_float64(device: torch.device) -> bool:
    """Return whether the device supports float64 (Apple's MPS does not)."""
    return device.type != "mps"


def exact_dtype(device: torch.device) -> torch.dtype:
    """Return the most precise float dtype of the device."""
    return torch.float64 if has_float64(device) else torch.float32


def has_fast_float64(device: torch.device) -> bool:
    """Return whether float64 matrix products take at most a few times as long as float32 ones."""
    if device.type == "cpu":
        return True
    if device.type != "cuda":
        return False
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return properties.gcnArchName.startswith(_FAST_FLOAT64_AMD)
    return (properties.major, properties.minor) in _FAST_FLOAT64


def gram_floor(n: int, additions: int = 1, rows: int = 1) -> float:
    """Return the smallest |r_kk / r_11| that a float64 Gram matrix of n columns resolves.

    The Gram matrix holds r_kk**2. Its rounding error is a few sqrt(n) * eps, plus up to eps / 6
    per row of one product on processors that add the rows one after the other. The square root of
    that is about 2e-7, only slightly above the rounding error of float32 activations.
    """
    row_error = min(rows, max(n, CHAIN)) / 6.0
    return math.sqrt((4.0 * math.sqrt(n) + math.sqrt(additions) + row_error) * EPS64)


def root_floor(n: int, additions: int = 1) -> float:
    """Return the smallest |r_kk / r_11| that `additions` float64 QR factorisations resolve."""
    return (4.0 * math.sqrt(n) + additions) * EPS64


def largest_magnitude(matrix: Tensor) -> float:
    """Return `max |matrix|`, or NaN if an entry is NaN; faster on a CPU than `abs().max()`."""
    if not matrix.numel():
        return 0.0
    low, high = torch.aminmax(matrix)
    return float(torch.maximum(high, -low))


def check_range(matrix: Tensor, *, squared: bool = False) -> None:
    """Raise on NaN and Inf; with `squared`, also on values whose squares float64 cannot hold."""
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
            f"the largest magnitude is {largest:.1e}, and float64 cannot hold its square; scale "
            f"the data into [{SMALLEST:g}, {LARGEST:g}] (T does not change)"
        )


def as_square(matrix: Tensor, n: int, name: str) -> Tensor:
    """Check that `matrix` is a finite float n x n tensor and return it without gradients."""
    if not isinstance(matrix, Tensor) or not matrix.is_floating_point():
        raise ArgumentError(f"{name} is not a float tensor; pass one of shape ({n}, {n})")
    if matrix.shape != (n, n):
        raise ArgumentError(f"{name} has shape {tuple(matrix.shape)}; it must be ({n}, {n})")
    if not bool(matrix.isfinite().all()):
        raise ArgumentError(f"{name} holds NaN or Inf; check the values it was computed from")
    return matrix.detach()
