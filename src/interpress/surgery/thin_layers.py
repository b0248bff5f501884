"""Replace dense layers by two thin layers of standard classes.

A linear layer or convolution `name` becomes `nn.Sequential(B, A)` under the same name. `B` keeps
the kernel, stride, padding and dilation, and has as many outputs as the rank. `A` is a linear layer
or a 1 x 1 convolution after it, and has the bias.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from interpress.linalg.low_rank import Factors
from interpress.surgery.weights import copy_with

CONVOLUTIONS: dict[type[nn.Module], int] = {nn.Conv1d: 1, nn.Conv2d: 2, nn.Conv3d: 3}
DENSE_CLASSES = (nn.Linear, *CONVOLUTIONS)
"""The classes whose modules can be replaced, subclasses excluded: those may have own code."""


def thin_pair(module: nn.Module, rank: int) -> nn.Sequential:
    """Return the two layers that replace a module, with weights that hold no values yet."""
    weight: Any = module.weight
    settings = {"device": weight.device, "dtype": weight.dtype}
    has_bias = module.bias is not None
    first: nn.Module
    last: nn.Module
    if isinstance(module, nn.Linear):
        first = nn.utils.skip_init(nn.Linear, module.in_features, rank, bias=False, **settings)
        last = nn.utils.skip_init(nn.Linear, rank, module.out_features, bias=has_bias, **settings)
    else:
        assert isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d)
        kind = type(module)
        first = nn.utils.skip_init(
            kind, module.in_channels, rank, module.kernel_size, module.stride, module.padding,
            module.dilation, bias=False, **settings,
        )  # fmt: skip
        last = nn.utils.skip_init(kind, rank, module.out_channels, 1, bias=has_bias, **settings)
    for parameter in [*first.parameters(), *last.parameters()]:
        parameter.requires_grad_(weight.requires_grad)
    return nn.Sequential(first, last).train(module.training)


def with_thin_layers(model: nn.Module, ranks: Mapping[str, int]) -> nn.Module:
    """Return a copy of a model with thin layers of these ranks, which hold no values yet."""
    smaller = copy_with(model, {})
    for name, rank in ranks.items():
        parent, _, attribute = name.rpartition(".")
        pair = thin_pair(smaller.get_submodule(name), rank)
        setattr(smaller.get_submodule(parent), attribute, pair)
    return smaller


def factored_copy(model: nn.Module, factors: Mapping[str, Factors]) -> nn.Module:
    """Return a copy of a model in which the named layers are replaced by their factors."""
    smaller = with_thin_layers(model, {name: pair.rank for name, pair in factors.items()})
    with torch.no_grad():
        for name, pair in factors.items():
            first, last = smaller.get_submodule(name).children()
            _write(first.weight, pair.B)
            _write(last.weight, pair.A)
            bias: Any = model.get_submodule(name).bias
            if bias is not None:
                _write(last.bias, bias)
    return smaller


def multiplied_copy(model: nn.Module, factors: Mapping[str, Factors]) -> nn.Module:
    """Return a copy of a model whose named layers have the product of their factors as weight.

    The product is computed in the dtype of the model's weight.
    """
    weights: dict[str, Tensor] = {}
    for name, pair in factors.items():
        weight: Any = model.get_submodule(name).weight
        product = pair.A.to(weight) @ pair.B.to(weight)
        weights[f"{name}.weight"] = product.reshape(weight.shape)
    return copy_with(model, weights)


def names_of_thin(ranks: Iterable[str]) -> set[str]:
    """Return the names of the modules that the replaced layers have."""
    return {part for name in ranks for part in (name, f"{name}.0", f"{name}.1")}


def _write(parameter: Any, values: Tensor) -> None:
    parameter.copy_(values.detach().reshape(parameter.shape))
