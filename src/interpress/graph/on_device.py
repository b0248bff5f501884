"""Run a model's own code on a device on which its weights do not live.

An operator whose operands are on several devices gets all of them on that device. So a weight is
copied there when an operator reads it together with an input, and the copy is released afterwards:
the device never holds more than a few weights at a time. The model itself is not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class OnDevice(TorchDispatchMode):
    """Runs operators on one device if their operands are on several.

    An operator whose operands are together runs where they are, so that views and writes reach the
    memory that they should.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        arguments = args, dict(kwargs or {})
        tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, Tensor)]
        if len({tensor.device for tensor in tensors}) > 1:
            written = _written(func, *arguments)
            arguments = placed(arguments, self._device if written is None else written.device)
        elif not tensors:  # an operator that creates a tensor
            arguments = placed(arguments, self._device)
        return func(*arguments[0], **arguments[1])


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Return the operand that an operator writes into, if it does."""
    names = [argument.name for argument in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    for argument in func._schema.arguments:
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        if is_written and isinstance(given.get(argument.name), Tensor):
            operand: Tensor = given[argument.name]
            return operand
    return None


def placed(arguments: Any, device: torch.device) -> Any:
    """Return the arguments of an operator with tensors and `device=` arguments on one device."""

    def moved(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.to(device)
        return device if isinstance(leaf, torch.device) else leaf

    return pytree.tree_map(moved, arguments)


def common_device(tensors: Iterable[Tensor]) -> torch.device | None:
    """Return the device on which all tensors are; None if there are several, or no tensors."""
    devices = {tensor.device for tensor in tensors}
    return devices.pop() if len(devices) == 1 else None


def compute_device(model: torch.nn.Module) -> torch.device:
    """Return where a model computes by itself: the device of its first parameter or buffer."""
    tensor = next((t for group in (model.parameters(), model.buffers()) for t in group), None)
    return torch.device("cpu") if tensor is None else tensor.device


def move_values(values: Mapping[Any, Any], device: torch.device) -> dict[Any, Any]:
    """Return values with every tensor on one device."""
    return {key: placed(value, device) for key, value in values.items()}
