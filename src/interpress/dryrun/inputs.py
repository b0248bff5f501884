"""What to try: widths, interpolations and weights that make mistakes show."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.weights import copy_with


def trial_kept(spaces: Spaces, names: list[str]) -> dict[str, Tensor]:
    """Some of every cell, never all of it; spaces that share a weight keep different numbers."""
    kept: dict[str, Tensor] = {}
    taken: dict[str, set[int]] = {}
    for index, name in enumerate(names):
        space = spaces[name]
        shares = space.size // space.step
        used = set().union(*(taken.get(weight, set()) for weight in weights_of(space)))
        wishes = [1 + (2 * shares // 3 + index + i) % (shares - 1) for i in range(shares - 1)]
        share = next((wish for wish in wishes if wish not in used), wishes[0])
        for weight in weights_of(space):
            taken.setdefault(weight, set()).add(share)
        kept[name] = last_of_every_cell(space, share)
    return kept


def last_of_every_cell(space: ChannelSpace, share: int) -> Tensor:
    """The last `share` of as many parts as a space can be cut into, in every cell."""
    shares = space.size // space.step
    kept = []
    for cell in space.cells.unique().tolist():
        members = torch.nonzero(space.cells == cell).reshape(-1)
        kept.append(members[-(len(members) * share // shares) :])
    return torch.cat(kept).sort().values


def random_interpolations(cut: Cut, seed: int = 0) -> dict[str, Tensor]:
    """Any interpolation proves a surgery: cheap random ones, zero between groups.

    `T` keeps what is kept and adds a random matrix of rank one, in which all entries differ.
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


def perturbed(model: nn.Module, seed: int = 0) -> nn.Module:
    """A copy with noise on all parameters, so that none is zero or special.

    The projection identity holds for any weights; layers that start at zero would hide mistakes.
    """
    copy = copy_with(model, {})
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in copy.parameters():
            if parameter.is_floating_point():
                typical = float(parameter.double().square().mean().sqrt())
                noise = torch.randn(parameter.shape, generator=generator)
                inputs = parameter.numel() // len(parameter) if parameter.ndim > 1 else 25
                size = max(0.1 * typical, 0.5 * inputs**-0.5)  # nothing fades away on its way
                parameter.add_((size * noise).to(parameter))
    return copy


def weights_of(space: ChannelSpace) -> tuple[str, ...]:
    """Every weight that makes, carries or reads a space."""
    return (*space.producers, *space.carriers, *space.consumers)
