"""Show channel spaces as a table that fits a terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from interpress.spaces.channel_space import ChannelSpace
from interpress.spaces.cost import CostModel
from interpress.spaces.frozen import FrozenShare
from interpress.tables.names import short_names
from interpress.tables.text_table import WIDTH, counted, paragraph, rendered

_GAP, _INDENT = 2, 5  # spaces between columns, and before the reason of a frozen space
_MODULES = 16  # characters that are always left for the modules that make or read a space
_SHARE = "of FLOPs"
_NAMED, _NAME_WIDTH = 2, 24  # spaces that a reason names, and the characters of a name


def render(
    spaces: Sequence[ChannelSpace],
    cost: CostModel,
    unused: Sequence[str],
    shares: Sequence[FrozenShare] = (),
    examples: int = 1,
    width: int = WIDTH,
) -> str:
    """Return a table of all spaces, with a summary and remedies for frozen spaces below it.

    A row has the size of a space, the share of FLOPs that depend on it, the modules that make and
    read it, and below it the reason if it is frozen. Long names are shortened. `examples` are in
    the batch that the cost counts.
    """
    rows = [_row(space, cost) for space in spaces]
    sizes = max([len("size"), *(len(row.size) for row in rows)])
    left = width - sizes - len(_SHARE) - 4 * _GAP - 1
    longest = max([len("space"), *(len(row.name) for row in rows)])
    name_width = min(longest, max(left - 2 * _MODULES, _MODULES))
    modules = (left - name_width) // 2
    names = short_names([row.name for row in rows], name_width)
    lines = [_line("space", "size", _SHARE, "made by", "read by", (name_width, sizes, modules))]
    for name, row, space in zip(names, rows, spaces, strict=True):
        made, read = _modules(row.made, modules), _modules(row.read, modules)
        lines.append(_line(name, row.size, row.flops, made, read, (name_width, sizes, modules)))
        if space.frozen:
            reason = textwrap.wrap(f"frozen: {space.frozen}", width - _INDENT)
            lines += [" " * _INDENT + line for line in reason]
    if rows:
        lines.append(paragraph(_legend(rows, shown=lines), width))
    if any(name != row.name for name, row in zip(names, rows, strict=True)):
        lines.append("Names are shortened; spaces.names (Python) and --json have them whole.")
    lines.append(paragraph(_summary(spaces, cost, unused, examples), width))
    if shares:
        lines.append("")
        lines.append(rendered(_remedies(shares, with_names=False), width))
    return "\n".join(lines)


class _Row(NamedTuple):
    name: str
    size: str
    flops: str
    made: list[str]
    read: list[str]


def _legend(rows: Sequence[_Row], shown: Sequence[str]) -> str:
    """Return what the columns mean; `shown` are the lines of the table."""
    legend = (
        f"{_SHARE}: the share of all FLOPs that depend on the size of the space. Most layers "
        "depend on two spaces, so the shares add up to more than 100%."
    )
    stepped = next((row.size for row in rows if "/" in row.size), None)
    if stepped is not None:
        size, step = stepped.split("/")
        legend += f" size {stepped}: {size} channels, of which a multiple of {step} can be kept."
    more = next((found for line in shown if (found := re.search(r" \+(\d+)(?= |$)", line))), None)
    if more is not None:
        legend += f" +{more[1]}: {counted(int(more[1]), 'more module')}."
    return legend


def _line(
    name: str, size: str, flops: str, made: str, read: str, widths: tuple[int, int, int]
) -> str:
    longest, sizes, modules = widths
    gap = " " * _GAP
    cells = (
        name.ljust(longest),
        size.rjust(sizes),
        flops.rjust(len(_SHARE)),
        made.ljust(modules),
        read,
    )
    return f" {gap.join(cells)}".rstrip()


def _row(space: ChannelSpace, cost: CostModel) -> _Row:
    size = f"{space.size}" if space.step in (1, space.size) else f"{space.size}/{space.step}"
    made = _modules_of(space.producers or space.carriers)
    return _Row(
        space.name, size, f"{cost.share(space.name):.0%}", made, _modules_of(space.consumers)
    )


def _modules_of(weights: Sequence[str]) -> list[str]:
    plain = (name.removesuffix(".weight").removesuffix(".bias") for name in weights)
    return list(dict.fromkeys(plain))


def _modules(names: Sequence[str], width: int) -> str:
    """Return the first modules, and the number of further ones, in at most `width` characters."""
    if len(names) <= 2 and len(text := ", ".join(names)) <= width:
        return text
    more = f" +{len(names) - 1}" if len(names) > 1 else ""
    return short_names(names[:1], width - len(more))[0] + more


def frozen_text(shares: Sequence[FrozenShare], cost: CostModel) -> str:
    """Return which spaces stay whole, why, how many FLOPs that concerns, and what can be done."""
    number, fixed = sum(len(share.spaces) for share in shares), 1 - cost.shrinkable_share()
    is_frozen = _verb(number, "is frozen and stays", "are frozen and stay")
    summary = (
        f"{counted(number, 'space')} {is_frozen} whole: {fixed:.1%} of the FLOPs cannot shrink."
    )
    return f"{paragraph(summary)}\n{rendered(_remedies(shares, with_names=True))}"


def _summary(
    spaces: Sequence[ChannelSpace], cost: CostModel, unused: Sequence[str], examples: int
) -> str:
    frozen = sum(1 for space in spaces if space.frozen)
    summary = (
        f"{counted(len(spaces) - frozen, 'space')} can shrink, "
        f"{frozen} {_verb(frozen, 'is', 'are')} frozen; {cost.shrinkable_share():.0%} of "
        f"{_amount(cost().flops // examples)} FLOPs per example depend on the spaces that can "
        "shrink."
    )
    if unused:
        shown = ", ".join(unused[:3]) + (", ..." if len(unused) > 3 else "")
        summary += (
            f" {counted(len(unused), 'parameter')} {_verb(len(unused), 'is', 'are')} not used "
            f"in evaluation mode ({shown}) and will not change; layers that run only in training "
            "may then no longer fit."
        )
    return summary


def _remedies(shares: Sequence[FrozenShare], *, with_names: bool) -> Table:
    """Return a table of what can be done about frozen spaces, by family of reasons."""
    table = Table(box=None, padding=(0, 1), expand=True, show_edge=False)
    table.add_column("why frozen", overflow="fold", ratio=5)
    table.add_column("spaces", justify="right", no_wrap=True)
    table.add_column("FLOPs", justify="right", no_wrap=True)
    table.add_column("what can be done", overflow="fold", ratio=7)
    for share in shares:
        why = share.family
        if with_names and share.spaces:
            why += f": {', '.join(short_names(share.spaces[:_NAMED], _NAME_WIDTH))}"
            why += ", ..." if len(share.spaces) > _NAMED else ""
        number = str(len(share.spaces))
        table.add_row(Text(why), number, f"{share.flops:.0%}", Text(share.remedy))
    return table


def _verb(number: int, one: str, many: str) -> str:
    return one if number == 1 else many


def _amount(number: int) -> str:
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)
