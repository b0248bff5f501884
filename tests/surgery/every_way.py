"""Shrink a network in every way that its spaces allow, and compare the results with it."""

from __future__ import annotations

import torch
from tests.zoo.checks import counted_flops, difference, halved, interpolations, plant
from torch import Tensor, nn

from interpress import find_spaces
from interpress.dryrun.inputs import random_interpolations
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import prove
from interpress.surgery.shrink import shrink


def shrinks_every_way(model: nn.Module, x: Tensor) -> Spaces:
    """Return the model's spaces, after shrinking them together and each alone.

    The projection identity must hold, FLOPs must be counted correctly, planted redundancy must be
    removed without error, and the model must not change.
    """
    model, x = model.double(), x.double() if x.is_floating_point() else x
    before = {name: value.clone() for name, value in model.state_dict().items()}
    spaces = find_spaces(model, x)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    names = [space.name for space in spaces.shrinkable]
    for chosen in [names, *([name] for name in names)]:
        kept = {name: halved(spaces[name], seed=4) for name in chosen}
        T = random_interpolations(Cut(spaces, kept))
        assert prove(spaces, Cut(spaces, kept, T), shrink(spaces, kept, T)), chosen
        widths = {name: len(index) for name, index in kept.items()}
        assert spaces.cost(widths).flops == counted_flops(shrink(spaces, kept), x)
    kept = {name: halved(spaces[name], seed=5) for name in names}
    plant(spaces, kept)
    T = interpolations(spaces, Cut(spaces, kept))
    assert difference(shrink(spaces, kept, T), model, x) < 1e-9
    model.load_state_dict(before)
    return spaces


def shrinkable_names(spaces: Spaces) -> set[str]:
    """Return the names of the spaces that can shrink."""
    return {space.name for space in spaces.shrinkable}
