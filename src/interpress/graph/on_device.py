"""Run a model's own code on a device on which its weights do not live.

Every operator gets its operands on that device. A weight is copied there when an operator reads it,
and the copy is released afterwards, so the device never holds more than a few weights at a time.
The model itself is not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class OnDevice(TorchDispatchMode):
    """Runs every operator on one device, wherever its operands are."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        args, kwargs = placed((args, dict(kwargs or {})), self._device)
        return func(*args, **kwargs)


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
