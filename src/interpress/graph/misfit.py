"""What to say if a model does not run on the inputs that it was given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from interpress.errors import InterpressError, MisfitError
from interpress.graph.example import Example

_COLOURS = (1, 3, 4)  # channels that images usually have
_LONGEST = 300  # characters of another library's message
_SHOWN = 3  # inputs whose shapes an error shows
_AS_FORWARD = (
    "pass what its forward takes, with the examples of a batch along the first dim: a tensor, a "
    "tuple of positional inputs, or a dict of keyword inputs"
)


@contextmanager
def explained(model: nn.Module, example: Example) -> Iterator[None]:
    """Turn what a model's code raises on an example into a `MisfitError`."""
    try:
        yield
    except (InterpressError, torch.OutOfMemoryError):
        raise
    except Exception as problem:  # the model's code may raise anything
        raise misfit(model, example, problem) from problem


def misfit(model: nn.Module, example: Example, problem: Exception) -> MisfitError:
    """Return the error that says on which inputs a model does not run, why, and what to do."""
    fault = f"{type(model).__name__} does not run on {_inputs(example)} ({first_line(problem)})"
    return MisfitError(fault, _remedy(example))


def first_line(problem: BaseException) -> str:
    """Return the type of an exception and the first line of its message."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    text = f"{type(problem).__name__}: {lines[0] if lines else ''}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4].rstrip()} ..."


def _inputs(example: Example) -> str:
    """Return the shapes and dtypes of the first inputs."""
    tensors = example.tensors()
    names = [name for name, value in example.kwargs.items() if isinstance(value, Tensor)]
    labels = [f"{name} " for name in names] if len(names) == len(tensors) else [""] * len(tensors)
    shown = [
        f"{label}{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
        for label, tensor in list(zip(labels, tensors, strict=True))[:_SHOWN]
    ]
    more = f" and {len(tensors) - _SHOWN} more" if len(tensors) > _SHOWN else ""
    noun = "an input of shape" if len(tensors) == 1 else "inputs of the shapes"
    return f"{noun} {', '.join(shown)}{more}"


def _remedy(example: Example) -> str:
    integer = [t for t in example.tensors() if not t.is_floating_point() and t.ndim > 2]
    if integer:
        return "images are numbers with a fraction: convert them with .float() / 255 first"
    sizes = list(dict.fromkeys(len(tensor) for tensor in example.tensors() if tensor.ndim))
    if len(sizes) > 1:
        return (
            f"the first dims of the inputs are {' and '.join(map(str, sizes))}, but every input "
            "needs one entry per example there; give graphs and sets as batches of one size"
        )
    if any(_has_channels_last(tensor) for tensor in example.tensors()):
        return "if these are images with their channels last, give images.permute(0, 3, 1, 2)"
    return _AS_FORWARD


def _has_channels_last(tensor: Tensor) -> bool:
    """Return whether a batch looks like images of shape (batch, height, width, channels)."""
    return tensor.ndim == 4 and tensor.shape[-1] in _COLOURS and tensor.shape[1] not in _COLOURS
