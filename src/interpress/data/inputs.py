"""From a batch as loaders make it to the inputs that a model's forward takes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from interpress.errors import ArgumentError, DataError
from interpress.graph.example import Example

Forward = Callable[[nn.Module, Any], Any]
"""A user's function that calls the model on one batch."""
_LIST_OF_TENSORS = r"(?:typing\.|collections\.abc\.)?(?:list|sequence)\[(?:torch\.)?tensor\]"
_TYPE_COMMENT = re.compile(rf"^\s*#\s*type:\s*\({_LIST_OF_TENSORS}\s*[,)]", re.IGNORECASE | re.M)
"""A type comment of a function whose first input is a list of tensors."""

LABELS = ("label", "labels", "label_ids", "target", "targets", "start_positions", "end_positions")
"""Keys of a batch that hold labels, which are never passed to the model."""


def as_example(batch: Any, model: nn.Module, number: int = 0) -> Example:
    """Return the model's inputs from batch number `number` of the calibration data."""
    batch = plain_batch(batch)
    if isinstance(batch, Example):
        return batch
    if isinstance(batch, Tensor):
        return Example((batch,))
    if isinstance(batch, Mapping):
        return Example((), _accepted(batch, model, number))
    if isinstance(batch, tuple | list) and batch:
        if _takes_list_of_images(model) and is_list_of_images(batch):
            return Example((list(batch),))
        if isinstance(batch[0], Mapping):
            return as_example(batch[0], model, number)
        required = inputs_in(batch, model)
        if len(batch) < required:
            raise DataError(
                f"calibration batch {number} has {len(batch)} inputs, but {type(model).__name__} "
                f"takes {required}; give them all, or pass forward="
            )
        return Example(tuple(batch[:required]))
    raise DataError(
        f"calibration batch {number} is a {type(batch).__name__}; give tensors, tuples or dicts of "
        "tensors, or pass forward=lambda model, batch: ..."
    )


def _takes_list_of_images(model: nn.Module) -> bool:
    """Return whether the forward says that its first input is a list of tensors."""
    try:
        hints = get_type_hints(model.forward)
    except Exception:  # names that only a type checker can see
        hints = getattr(model.forward, "__annotations__", {})
    first = next(iter(parameters_of(model)), "")
    if first not in hints:
        return bool(_TYPE_COMMENT.search(_source_of(model.forward)))
    return bool(re.fullmatch(_LIST_OF_TENSORS, str(hints[first]), re.IGNORECASE))


def _source_of(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # code without a file
        return ""


def is_list_of_images(batch: Any) -> bool:
    """Return whether a batch may be one input: a list of images, each (channels, height, width)."""
    return (
        isinstance(batch, tuple | list)
        and bool(batch)
        and all(
            isinstance(entry, Tensor) and entry.ndim == 3 and entry.is_floating_point()
            for entry in batch
        )
    )


def _accepted(batch: Mapping[str, Any], model: nn.Module, number: int) -> dict[str, Any]:
    """Return the entries of a dict batch that the model's forward takes."""
    parameters = parameters_of(model)
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    inputs = {
        str(name): value
        for name, value in batch.items()
        if not is_label(name, parameters) and (open_ended or name in parameters)
    }
    if not any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(inputs)):
        raise DataError(
            f"calibration batch {number} has the keys {', '.join(map(repr, batch))}, but "
            f"{type(model).__name__} takes {', '.join(parameters)}; rename the keys, or pass "
            "forward=lambda model, batch: model(batch[...])"
        )
    return inputs


def is_label(name: str, parameters: Mapping[str, inspect.Parameter]) -> bool:
    """Return whether an entry of a batch holds labels: by its name, unless forward requires it."""
    required = name in parameters and parameters[name].default is inspect.Parameter.empty
    return name in LABELS and not required


def with_named_mask(batch: Any, model: nn.Module) -> Any:
    """Return a tuple of inputs, a mask and maybe labels as a dict; other batches as they are.

    The second entry is a mask if forward has one as its second parameter, and if the entry holds
    zeros and ones for the positions of the first entry.
    """
    if not isinstance(batch, tuple | list) or not 2 <= len(batch) <= 3:
        return batch
    names = list(parameters_of(model))[:2]
    inputs, mask = _tensor(batch[0]), _tensor(batch[1])
    if len(names) < 2 or "mask" not in names[1] or required_inputs(model) > 1:
        return batch
    if not isinstance(inputs, Tensor) or not isinstance(mask, Tensor) or mask.ndim != 2:
        return batch
    if inputs.shape[:2] != mask.shape or not bool(((mask == 0) | (mask == 1)).all()):
        return batch
    named = {names[0]: inputs, names[1]: mask}
    return named if len(batch) == 2 else {**named, LABELS[1]: batch[2]}


class RecordedInputs(Exception):
    """Raised inside the model's call, once its inputs are known."""

    def __init__(self, example: Example) -> None:
        super().__init__()
        self.example = example


def record_inputs(model: nn.Module, forward: Forward, batch: Any) -> Example:
    """Return the inputs with which the user's own function calls the model."""

    def stop(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        raise RecordedInputs(Example(args, kwargs))

    handle = model.register_forward_pre_hook(stop, with_kwargs=True, prepend=True)
    try:
        forward(model, batch)
    except RecordedInputs as stopped:
        return stopped.example
    finally:
        handle.remove()
    raise ArgumentError(
        "forward= returned without calling the model; call model(...) in it, as in "
        "forward=lambda model, batch: model(batch['pixels'])"
    )


def plain_batch(batch: Any) -> Any:
    """Return a batch with arrays as tensors and any mapping as a dict."""
    if isinstance(batch, Example):
        return batch
    return pytree.tree_map(_tensor, dict(batch) if isinstance(batch, Mapping) else batch)


def _tensor(leaf: Any) -> Any:
    return torch.from_numpy(leaf) if type(leaf).__name__ == "ndarray" else leaf


def required_inputs(model: nn.Module) -> int:
    """Return how many positional inputs the model's forward requires."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = parameters_of(model).values()
    return sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters)


def inputs_in(batch: tuple[Any, ...] | list[Any], model: nn.Module) -> int:
    """Return how many entries of a tuple are inputs: those that forward requires, or takes all."""
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters_of(model).values()):
        return max(len(batch), required_inputs(model))
    return max(1, required_inputs(model))


def parameters_of(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of the model's forward."""
    return inspect.signature(model.forward).parameters
