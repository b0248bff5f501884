"""Show channel spaces as a table that fits a terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.cost import CostModel
from interpress.spaces.frozen import FrozenShare


def render(
    spaces: Sequence[ChannelSpace],
    cost: CostModel,
    unused: Sequence[str],
    shares: Sequence[FrozenShare] = (),
    width: int = 80,
) -> str:
    """Return a table of all spaces, with a summary and remedies for frozen spaces below it.

    A row has the size of a space, the share of FLOPs that depends on it, the modules that make and
    read it, or the reason why it is frozen.
    """
    table = Table(box=None, padding=(0, 1), expand=True, show_edge=False)
    table.add_column("space", overflow="fold", ratio=3)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("FLOPs", justify="right", no_wrap=True)
    table.add_column("made by", overflow="fold", ratio=3)
    table.add_column("read by, or why it is frozen", overflow="fold", ratio=5)
    for space in spaces:
        table.add_row(*_row(space, cost), style="dim" if space.frozen else "")
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, force_terminal=False, color_system=None)
    console.print(table)
    console.print(_summary(spaces, cost, unused), soft_wrap=False)
    if shares:
        console.print(_remedies(shares))
    return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().splitlines())


def _summary(spaces: Sequence[ChannelSpace], cost: CostModel, unused: Sequence[str]) -> str:
    frozen = sum(1 for space in spaces if space.frozen)
    summary = (
        f"{_counted(len(spaces) - frozen, 'space')} can shrink, "
        f"{frozen} {'is' if frozen == 1 else 'are'} frozen; {cost.shrinkable_share():.0%} of "
        f"{_amount(cost().flops)} FLOPs depend on the spaces that can shrink."
    )
    if unused:
        shown = ", ".join(unused[:3]) + (", ..." if len(unused) > 3 else "")
        summary += (
            f" {_counted(len(unused), 'parameter')} {'is' if len(unused) == 1 else 'are'} not used "
            f"in evaluation mode ({shown}) and will not change; layers that run only in training "
            "may then no longer fit."
        )
    return summary


def _remedies(shares: Sequence[FrozenShare]) -> Table:
    """Return a table of what can be done about frozen spaces, by family of reasons."""
    table = Table(box=None, padding=(0, 1), expand=True, show_edge=False)
    table.add_column("why frozen", overflow="fold", ratio=4)
    table.add_column("spaces", justify="right", no_wrap=True)
    table.add_column("FLOPs", justify="right", no_wrap=True)
    table.add_column("what can be done", overflow="fold", ratio=7)
    for share in shares:
        number = str(len(share.spaces))
        table.add_row(share.family, number, f"{share.flops:.0%}", share.remedy)
    return table


def _row(space: ChannelSpace, cost: CostModel) -> tuple[str, ...]:
    size = f"{space.size}" if space.step in (1, space.size) else f"{space.size}/{space.step}"
    return (
        space.name,
        size,
        f"{cost.share(space.name):.0%}",
        _short(space.producers or space.carriers),
        f"frozen: {space.frozen}" if space.frozen else _short(space.consumers),
    )


def _short(weights: tuple[str, ...]) -> str:
    """Return the first two modules of some weights, and the number of further ones."""
    modules = list(
        dict.fromkeys(name.removesuffix(".weight").removesuffix(".bias") for name in weights)
    )
    more = f" +{len(modules) - 2}" if len(modules) > 2 else ""
    return ", ".join(modules[:2]) + more


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _amount(number: int) -> str:
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)
