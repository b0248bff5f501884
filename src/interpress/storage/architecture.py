"""What a saved result remembers of its original: modules, shapes, and a hash of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from interpress.errors import StorageError
from interpress.graph.digest import weights_digest
from interpress.graph.snapshot import has_values


def tensors_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield every parameter and buffer once, including those that a state dict leaves out."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def architecture_of(model: nn.Module) -> dict[str, Any]:
    """Return the types of all modules and the shapes of all tensors, by name."""
    return {
        "class": type(model).__name__,
        "modules": {name: type(module).__name__ for name, module in model.named_modules()},
        "tensors": {name: list(tensor.shape) for name, tensor in tensors_of(model)},
    }


def check_architecture(source: Path, saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise if the model that is given is not of the architecture that was compressed."""
    remedy = (
        "give the original as it was before compression: the same code, or the same ONNX or .pt2 "
        "file"
    )
    if saved["class"] != given["class"]:
        remedy = f"it was made from {saved['class']}, and this is {given['class']}: {remedy}"
    for part, noun in (("tensors", "tensor"), ("modules", "module")):
        expected, actual = saved[part], given[part]
        for name in expected:
            if name not in actual:
                raise StorageError(f"{source}: the model has no {noun} {name!r}; {remedy}")
            if expected[name] != actual[name]:
                raise StorageError(
                    f"{source}: {noun} {name!r} is {actual[name]} in this model, but the "
                    f"compressed one was made from {expected[name]}; {remedy}"
                )
        extra = next((name for name in actual if name not in expected), None)
        if extra is not None:
            raise StorageError(f"{source}: the original had no {noun} {extra!r}; {remedy}")


def digest_of(model: nn.Module) -> str | None:
    """Return a hash of the weights; None if some are elsewhere, or are no plain tensors."""
    tensors = [tensor for _, tensor in tensors_of(model)]
    is_plain = all(type(t) in (Tensor, nn.Parameter) and has_values(t) for t in tensors)
    return weights_digest(model) if is_plain else None


def has_other_weights(record: Mapping[str, Any], model: nn.Module) -> bool:
    """Return whether a result was made from other weights than a model has; False if unknown.

    `record` is the content of its `plan.json`. Weights in another dtype are other weights.
    """
    original = record.get("original")
    saved = original.get("weights") if isinstance(original, Mapping) else None
    here = None if saved is None else digest_of(model)
    return here is not None and here != saved
