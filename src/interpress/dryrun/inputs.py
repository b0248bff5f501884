"""What to try: kept channels, interpolations and weights that make mistakes visible."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from interpress.graph.example import Example
from interpress.graph.model_state import evaluation
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.weights import copy_with

LARGE = 2**30
"""Bytes of weights from which no copy of the whole model is made."""
_DIFFERENT = 6
"""Neighbouring spaces that keep different numbers of channels."""


def trial_kept(spaces: Spaces, names: list[str]) -> dict[str, Tensor]:
    """Return channels to keep in each named space: a part of every cell.

    About two thirds stay, so that some of them are active. Spaces that share a weight keep
    different numbers if possible, and so do neighbours, so that a size that follows the wrong space
    is noticed.
    """
    kept: dict[str, Tensor] = {}
    used_by_weight: dict[str, set[int]] = {}
    for index, name in enumerate(names):
        space = spaces[name]
        steps = space.size // space.step
        used = set().union(*(used_by_weight.get(weight, set()) for weight in weights_of(space)))
        preferences = sorted(range(1, steps), key=lambda number: abs(3 * number - 2 * steps))
        first = index % min(_DIFFERENT, len(preferences))
        preferences = preferences[first:] + preferences[:first]
        count = next((number for number in preferences if number not in used), preferences[0])
        for weight in weights_of(space):
            used_by_weight.setdefault(weight, set()).add(count)
        kept[name] = last_of_every_cell(space, count)
    return kept


def last_of_every_cell(space: ChannelSpace, share: int) -> Tensor:
    """Return the last channels of every cell: `share * space.step` channels in all."""
    steps = space.size // space.step
    kept = []
    for cell in space.cells.unique().tolist():
        members = torch.nonzero(space.cells == cell).reshape(-1)
        kept.append(members[-(len(members) * share // steps) :])
    return torch.cat(kept).sort().values


def random_interpolations(cut: Cut, seed: int = 0) -> dict[str, Tensor]:
    """Return a random `T` for every tap that loses channels, zero between groups.

    The projection identity holds for any `T`. This one is the identity on the kept columns plus a
    matrix of rank one whose entries are all different, so that mixed-up entries are noticed.
    """
    generator = torch.Generator().manual_seed(seed)
    matrices = {}
    for name, tap in cut.spaces.taps.items():
        kept = cut.columns(tap)
        if len(kept) == tap.size:
            continue
        row = torch.randn(len(kept), 1, generator=generator, dtype=torch.float64)
        column = torch.randn(1, tap.size, generator=generator, dtype=torch.float64)
        T = row * column / max(1.0, len(kept) ** 0.5)
        T[torch.arange(len(kept)), kept] += 1
        T[tap.groups[kept][:, None] != tap.groups[None, :]] = 0
        matrices[name] = T
    return matrices


def perturbed(model: nn.Module, names: Collection[str] | None = None, seed: int = 0) -> nn.Module:
    """Return a copy of the model with noise added to all parameters, or to the named ones.

    The projection identity holds for any weights, but weights that are zero would hide mistakes.
    Parameters without noise share memory with the model's.
    """
    named = dict(model.named_parameters())
    unchanged = {} if names is None else {n: p for n, p in named.items() if n not in names}
    copy = copy_with(model, unchanged, shared=True)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in copy.named_parameters():
            if parameter.is_floating_point() and name not in unchanged:
                rms = float(parameter.double().square().mean().sqrt())
                noise = torch.randn(parameter.shape, generator=generator)
                fan_in = parameter.numel() // len(parameter) if parameter.ndim > 1 else 25
                # at least 0.5 / sqrt(fan_in), so that no activation becomes too small to notice
                scale = max(0.1 * rms, 0.5 * fan_in**-0.5)
                parameter.add_((scale * noise).to(parameter))
    return copy


def scale_to_unit_variation(model: nn.Module, example: Example) -> None:
    """Scale the weights of linear layers and convolutions until their outputs vary by about 1.

    The variation is that over the batch. Without this, a deep network with perturbed weights may
    hardly depend on its input: its outputs are constants, next to which what depends on the input
    is as small as rounding. The weights are changed in place.
    """
    scaled: dict[int, tuple[nn.Parameter, Tensor]] = {}

    def scale(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        weight = module.get_parameter("weight")
        if id(weight) in scaled or len(output) < 2:
            return None
        variation = float((output[1:] - output[:-1]).double().square().mean().sqrt())
        factor = 1 / variation if 0 < variation < float("inf") else 1.0
        weight.mul_(factor)
        scaled[id(weight)] = weight, weight.detach().clone()
        return module.forward(*args, **kwargs)

    handles = [
        module.register_forward_hook(scale, with_kwargs=True)
        for module in model.modules()
        if isinstance(module, nn.Linear | _ConvNd)
    ]
    try:
        with evaluation(model), torch.no_grad():  # it may restore the weights
            example.call(model)
    finally:
        for handle in handles:
            handle.remove()
    with torch.no_grad():
        for weight, values in scaled.values():
            weight.copy_(values)


def weights_of(space: ChannelSpace) -> tuple[str, ...]:
    """Return all weights that make, carry or read a space."""
    return (*space.producers, *space.carriers, *space.consumers)
