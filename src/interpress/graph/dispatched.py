"""Models that accelerate has spread over devices, or whose weights it keeps outside of them.

`device_map=` of transformers and `accelerate.dispatch_model` put hooks on modules. A hook moves the
inputs of its module, and may load the module's weights, which are elsewhere until then. Such a
model is compressed through a copy without hooks, which shares the weights.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn


def without_dispatch(model: nn.Module) -> nn.Module:
    """Return a model that has no hooks of accelerate: the model itself, or a copy of it.

    The copy shares the memory of all weights that are on a device. Those that are kept on the CPU
    or on disk until they are needed are loaded into the memory of the CPU.
    """
    if not any(hasattr(module, "_hf_hook") for module in model.modules()):
        return model
    from accelerate.hooks import ModelHook, remove_hook_from_module

    kept_outside = _kept_outside(model)
    memo: dict[int, Any] = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        value = kept_outside.get(id(tensor), tensor).detach()
        is_parameter = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(value, tensor.requires_grad) if is_parameter else value
    for module in model.modules():
        if hasattr(module, "_hf_hook"):
            memo[id(module._hf_hook)] = ModelHook()  # one that does nothing when it is removed
    plain = copy.deepcopy(model, memo)
    remove_hook_from_module(plain, recurse=True)
    for module in plain.modules():
        forward = vars(module).get("forward")
        if getattr(forward, "__func__", None) is type(module).forward:
            del vars(module)["forward"]  # the class has it
    return plain


def _kept_outside(model: nn.Module) -> dict[int, Tensor]:
    """Return the values of all tensors that hooks load when their module runs."""
    values: dict[int, Tensor] = {}
    for module in model.modules():
        for hook in _hooks(module):
            if getattr(hook, "offload", False) and hook.weights_map is not None:
                recurse = hook.place_submodules
                tensors = [
                    *module.named_parameters(recurse=recurse),
                    *module.named_buffers(recurse=recurse),
                ]
                for name, tensor in tensors:
                    if tensor.is_meta and id(tensor) not in values:
                        values[id(tensor)] = hook.weights_map[name]
    return values


def _hooks(module: nn.Module) -> Iterator[Any]:
    hook = getattr(module, "_hf_hook", None)
    if hook is not None:
        yield from getattr(hook, "hooks", (hook,))  # several hooks of one module
