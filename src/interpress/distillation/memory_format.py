"""The memory format in which a GPU computes convolutions fastest."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from interpress.evaluation.outputs import flatten_output
from interpress.graph.example import Example

_APART = 1e-2
"""How far outputs may be apart, relative to their norm: other kernels round otherwise (in TF32 by
about 1e-3), and code that depends on the layout gives something else."""


def with_channels_last(tensor: Tensor) -> Tensor:
    """Return a batch of pictures with the channels of a pixel side by side; others as they are."""
    if tensor.ndim != 4 or not tensor.is_floating_point():
        return tensor
    return tensor.contiguous(memory_format=torch.channels_last)


def use_channels_last(original: nn.Module, smaller: nn.Module, example: Example) -> bool:
    """Give the weights of the smaller network this format if it is faster; return whether it is.

    This is so for convolutions of pictures on an NVIDIA GPU. The code of some models works with one
    format only, so both networks are tried. The original is not changed.
    """
    if not any(t.is_cuda and t.ndim == 4 for t in example.tensors()):
        return False
    if not any(isinstance(module, nn.Conv2d) for module in smaller.modules()):
        return False
    usual = [_outputs(network, example) for network in (original, smaller)]
    smaller.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    try:
        pictures = example.map(with_channels_last)
        others = [_outputs(network, pictures) for network in (original, smaller)]
        fits = all(map(_equal, usual, others))
    except RuntimeError:  # such as a view of values that no longer lie side by side
        fits = False
    if not fits:
        smaller.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return fits


def _outputs(network: nn.Module, example: Example) -> list[Tensor]:
    with torch.no_grad():
        return list(flatten_output(example.call(network))[0].values())


def _equal(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    """Return whether two lists of outputs are equal up to rounding."""
    for a, b in zip(first, second, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if a.is_floating_point() and not float((a - b).norm()) <= _APART * float(a.norm()):
            return False
    return True
