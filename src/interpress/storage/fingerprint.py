"""A fingerprint of a network's output, to notice when a loaded network is not the saved one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from interpress.graph.model_state import output_tensors
from interpress.graph.snapshot import has_values
from interpress.storage.example_description import random_example

_TOLERANCE = 1e-3  # relative; other devices and versions of torch round differently
_TOLERANCE_HALF = 5e-2


def fingerprint(model: nn.Module, description: Any) -> Any:
    """Return sums of the outputs on an example of this description.

    None if the model draws random numbers or does not run on such an example.
    """
    first, second = _sums(model, description), _sums(model, description)
    return None if first is None or first != second else {"example": description, "sums": first}


def matches(model: nn.Module, stored: Any) -> bool:
    """Return whether a network gives the stored outputs; True if that cannot be told."""
    if stored is None or not all(has_values(parameter) for parameter in model.parameters()):
        return True
    sums = _sums(model, stored["example"])
    if sums is None:
        return True
    dtypes = {parameter.dtype for parameter in model.parameters()}
    half = bool(dtypes & {torch.float16, torch.bfloat16})
    tolerance = _TOLERANCE_HALF if half else _TOLERANCE
    return len(sums) == len(stored["sums"]) and all(
        shape == other_shape
        and all(
            abs(a - b) <= tolerance * max(size, other_size)
            for a, b in zip(values, other_values, strict=True)
        )
        for (shape, size, values), (other_shape, other_size, other_values) in zip(
            sums, stored["sums"], strict=True
        )
    )


def _sums(model: nn.Module, description: Any) -> list[Any] | None:
    """Return, per floating-point output: its shape, its norm, and two weighted sums."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    try:
        with torch.random.fork_rng():
            outputs = output_tensors(model, random_example(description, device))
    except Exception:  # the model's own code; its output is then not compared
        return None
    return [_summary(output) for output in outputs if _is_plain(output)]


def _is_plain(output: Tensor) -> bool:
    return output.is_floating_point() and bool(output.isfinite().all())


def _summary(output: Tensor) -> list[Any]:
    values = output.detach().double().cpu().reshape(-1)
    weights = torch.linspace(-1, 1, values.numel(), dtype=torch.float64)
    scale = max(values.numel(), 1) ** -0.5
    sums = [float(values.sum()) * scale, float(values @ weights) * scale]
    return [list(output.shape), float(torch.linalg.vector_norm(values)), sums]
