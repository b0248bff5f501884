"""The table of allocations.

An allocation is a path of widths. It starts at the full widths, gets strictly cheaper at every
step, never widens a space, and ends at the smallest allowed width of every space that it may
shrink. A path that spares spaces ends where only those are whole; the files in `rules/` spare none.
`tests/allocation/test_contract.py` checks this for all of them. To add an allocation, write a file
there with one function:

    @allocation("constant")
    def constant(problem: Problem) -> Iterator[Widths]: ...

`losses` says how the loss of a space at each width is predicted. With `measures=True` it also gets
the measured effect of every space on the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from interpress.allocation.effects import Effects
from interpress.allocation.problem import Problem, Widths
from interpress.registry import Registry
from interpress.selection.orders import Orders
from interpress.spaces.spaces import Spaces

Path = Callable[[Problem], Iterator[Widths]]
Losses = Callable[[Orders, Effects | None], Mapping[str, Tensor]]


@dataclass(frozen=True)
class Allocation:
    """One allocation: its path, and the losses it goes by."""

    path: Path
    losses: Losses
    measures: bool = False
    unit: str = ""
    """What its losses are, unless they are divergences."""
    of_heads: bool = False
    """Whether it is another allocation under a new name if no space consists of heads."""
    of_groups: bool = False
    """Whether it is that if no heads share a key and a value."""

    def differs(self, spaces: Spaces) -> bool:
        """Return whether it is more than another allocation under a new name."""
        if self.of_groups and not any(space.in_groups for space in spaces.shrinkable):
            return False
        return not self.of_heads or any(space.heads for space in spaces.shrinkable)


ALLOCATIONS: Registry[Allocation] = Registry("allocation", "interpress.allocation.rules")


CONSUMER_ERRORS = (
    "squared error of what the next layers compute, relative to its variance, summed over spaces"
)
"""What the losses of `consumer_errors` are."""
PIVOT_RATIOS = "|r_kk / r_11| of a pivoted QR decomposition, summed over spaces"
"""What the losses of `pivot_ratios` are."""
DIVERGENCES = "KL divergence of the predictions in nats per token, summed over spaces"
"""What losses are where calibration measured divergences, whatever the allocation."""


def monotone(losses: Tensor) -> Tensor:
    """Return the same losses, raised where needed so that they never increase with the width."""
    return losses.flip(0).cummax(0).values.flip(0)


def consumer_errors(orders: Orders, effects: Effects | None = None) -> dict[str, Tensor]:
    """Return the relative squared error that the consumers of every space see, per width."""
    return {name: monotone(order.errors) for name, order in orders.items()}


def pivot_ratios(orders: Orders, effects: Effects | None = None) -> dict[str, Tensor]:
    """Return the paper's cheap estimate `|r_{k+1,k+1} / r_11|` per width.

    Divergences, where they are known, compare spaces better.
    """
    if orders.are_divergences:
        return consumer_errors(orders)
    return {name: monotone(order.proxy) for name, order in orders.items()}


def allocation(
    name: str,
    *,
    losses: Losses = consumer_errors,
    measures: bool = False,
    unit: str = CONSUMER_ERRORS,
    of_heads: bool = False,
    of_groups: bool = False,
) -> Callable[[Path], Path]:
    """Return a decorator that registers a path as the allocation of this name.

    `unit` says in words what the losses are.
    """

    def add(path: Path) -> Path:
        ALLOCATIONS.register(name)(Allocation(path, losses, measures, unit, of_heads, of_groups))
        return path

    return add
