"""Drop whole layers (ShortGPT, X. Men et al., 2024), those that change the hidden states least."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def layer_list(model: nn.Module) -> nn.ModuleList:
    """Return the list of the model's layers: the longest one whose members are of one class."""
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList)]
    return max((m for m in lists if len({type(layer) for layer in m}) == 1), key=len)


@torch.no_grad()
def influences(model: nn.Module, batches: Sequence[Tensor]) -> list[float]:
    """Return one minus the mean cosine of a layer's input and output, per layer."""
    layers = layer_list(model)
    totals, count = [0.0] * len(layers), 0
    handles = []
    for number, layer in enumerate(layers):

        def watch(
            module: nn.Module, args: tuple[Tensor, ...], output: object, at: int = number
        ) -> None:
            after = output[0] if isinstance(output, tuple) else output
            assert isinstance(after, Tensor)
            totals[at] += float(nn.functional.cosine_similarity(args[0], after, dim=-1).sum())

        handles.append(layer.register_forward_hook(watch))
    device = next(model.parameters()).device
    try:
        for batch in batches:
            model(batch.to(device), use_cache=False)
            count += batch.numel()
    finally:
        for handle in handles:
            handle.remove()
    return [1 - total / count for total in totals]


def without_layers(model: nn.Module, influence: Sequence[float], count: int) -> nn.Module:
    """Return a copy without the `count` layers of least influence."""
    smaller = copy.deepcopy(model)
    layers = layer_list(smaller)
    least = set(sorted(range(len(layers)), key=lambda number: influence[number])[:count])
    for number in sorted(least, reverse=True):
        del layers[number]
    smaller.config.num_hidden_layers = len(layers)  # type: ignore[union-attr]
    return smaller
