"""Build a smaller copy of a network. Only this module writes weights.

Weights that make or carry a space are *selected*. Weights that read it *absorb* `T`:
`W <- W @ T.T` along the dim that they read. The model is copied with the smaller tensors in the
place of the original ones, so shared weights stay shared and the original model does not change.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from interpress.errors import SurgeryError
from interpress.graph.snapshot import has_values, runs_the_same_code
from interpress.surgery.attributes import update_attributes
from interpress.surgery.cut import Cut


def shrunk_copy(cut: Cut, *, shared: bool = False) -> nn.Module:
    """Return the smaller network that a cut describes, without proving it.

    With `shared`, weights that do not change share memory with the original's. Such a network is
    only for a trial.
    """
    model, original = cut.spaces.program.model, cut.spaces.program.parameters()
    weights: dict[str, Tensor] = dict(model.named_parameters()) if shared else {}
    for name, weight in cut.weights.items():
        weights[name] = weight.to(original[name], copy=True)
    smaller = copy_with(model, weights, shared=shared)
    update_attributes(cut, smaller)
    return smaller


def copy_with(
    model: nn.Module, changed: Mapping[str, Tensor], *, shared: bool = False
) -> nn.Module:
    """Return a deep copy of the model with some parameters and buffers replaced, by name.

    With `shared`, what is replaced may share memory with the original.
    """
    named = dict(model.named_parameters()) | dict(model.named_buffers())
    memo: dict[int, Any] = {}
    for name, tensor in changed.items():
        original = named[name]
        replacement: Tensor = tensor.detach()
        if isinstance(original, nn.Parameter):
            replacement = nn.Parameter(replacement, requires_grad=original.requires_grad)
        for key, value in vars(original).items():
            setattr(replacement, key, copy.deepcopy(value))
        memo[id(original)] = replacement
    try:
        with torch.inference_mode(False), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch's own, of its graph modules
            duplicate = copy.deepcopy(model, memo)
    except Exception as problem:
        raise SurgeryError(
            f"{type(model).__name__} cannot be copied ({type(problem).__name__}: {problem}); "
            "remove attributes that cannot be copied, such as locks, files and generators"
        ) from problem
    _check_separate(model, duplicate, changed if shared else {})
    runs_the_same_code(model, duplicate)
    return duplicate


def overwrite(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Write new values into parameters and buffers of a smaller copy, by name."""
    named = dict(model.named_parameters()) | dict(model.named_buffers())
    with torch.no_grad():
        for name, tensor in weights.items():
            named[name].copy_(tensor)


def _check_separate(model: nn.Module, duplicate: nn.Module, shared: Collection[str]) -> None:
    """Refuse a copy that shares modules or memory with the original, as `__deepcopy__` may make.

    The tensors named in `shared` may share memory.
    """
    modules = {id(module) for module in model.modules()}
    for name, module in duplicate.named_modules():
        if id(module) in modules:
            raise _not_separate(model, f"the module {name!r}" if name else "its modules")
    original = {_storage(tensor) for _, tensor in _tensors(model)}
    for name, tensor in _tensors(duplicate):
        if name not in shared and _storage(tensor) in original:
            raise _not_separate(model, f"the memory of {name!r}")


def _not_separate(model: nn.Module, what: str) -> SurgeryError:
    return SurgeryError(
        f"a copy of {type(model).__name__} shares {what} with the original, so changing one would "
        "change the other; remove the custom __deepcopy__, or let it copy all modules, parameters "
        "and buffers"
    )


def _tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Return the parameters and buffers that hold numbers."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return [(name, tensor) for name, tensor in named if tensor.numel() and has_values(tensor)]


def _storage(tensor: Tensor) -> tuple[torch.device, int]:
    return tensor.device, tensor.untyped_storage().data_ptr()
