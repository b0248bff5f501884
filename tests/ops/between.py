"""Place an operator between a layer that produces channels and a layer that consumes them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tests.zoo.checks import counted_flops, difference, halved, interpolations, plant
from torch import Tensor, nn

from interpress import find_spaces
from interpress.dryrun.inputs import random_interpolations
from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.spaces import Spaces
from interpress.surgery.cut import Cut
from interpress.surgery.projection_identity import prove
from interpress.surgery.shrink import shrink

Function = Callable[..., Tensor]


class Between(nn.Module):
    """`last(middle(first(x)))`, where `middle` may use the parameters in `weights`."""

    def __init__(
        self, first: nn.Module, middle: Function, last: nn.Module, **weights: Tensor
    ) -> None:
        super().__init__()
        self.first, self.middle, self.last = first, middle, last
        for name, weight in weights.items():
            self.register_parameter(name, nn.Parameter(weight))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.middle(self, self.first(x)))


def linear(middle: Function, into: int = 12, out: int = 12, **weights: Tensor) -> tuple:
    """Place `middle` between two linear layers, over `(batch, tokens, channels)`."""
    torch.manual_seed(0)
    model = Between(nn.Linear(5, into), middle, nn.Linear(out, 4), **weights).double()
    return model, torch.randn(3, 6, 5, dtype=torch.float64)


def convolution(middle: Function, into: int = 12, out: int = 12, **weights: Tensor) -> tuple:
    """Place `middle` between two convolutions, over `(batch, channels, 8, 8)`."""
    torch.manual_seed(0)
    model = Between(nn.Conv2d(3, into, 3, padding=1), middle, nn.Conv2d(out, 4, 1), **weights)
    return model.double(), torch.randn(3, 3, 8, 8, dtype=torch.float64)


def shrinks(case: tuple, size: int, step: int = 1) -> Spaces:
    """Check that the first layer's space has this size and step, and shrinks exactly."""
    model, x = case
    spaces = find_spaces(model, x)
    space = made_by_first(spaces)
    assert space.frozen is None, space.frozen
    assert (space.size, space.step) == (size, step)
    kept = {s.name: halved(s, seed=1) for s in spaces.shrinkable}
    T = random_interpolations(Cut(spaces, kept))
    cut = Cut(spaces, kept, T)
    assert prove(spaces, cut, shrink(spaces, kept, T)).difference < 1e-12
    assert spaces.cost({k: len(v) for k, v in kept.items()}).flops == counted_flops(
        shrink(spaces, kept), x
    )
    plant(spaces, kept)
    T = interpolations(spaces, Cut(spaces, kept))
    assert difference(shrink(spaces, kept, T), model, x) < 1e-9
    return spaces


def freezes(case: tuple, reason: str) -> None:
    """Check that the first layer's space is frozen, and that the reason contains `reason`."""
    model, x = case
    space = made_by_first(find_spaces(model, x))
    assert space.frozen is not None
    assert reason in space.frozen, space.frozen


def made_by_first(spaces: Spaces) -> ChannelSpace:
    """Return the space that the first layer produces, alone or with other layers."""
    return next(space for space in spaces if "first.weight" in space.producers)
