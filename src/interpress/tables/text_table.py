"""Tables of 80 columns: names give way to numbers, and numbers are never cut."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from interpress.tables.names import short_names

WIDTH = 80
_SHORTEST = 12  # characters that are always left for a name
_FRAME = 3  # per column: a line and a space on both sides; one line more at the end


def text_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str | None = None,
    width: int = WIDTH,
    full_width: bool = False,
) -> str:
    """Return a table with names in its first column and numbers in the others.

    Names are shortened in the middle until the table fits. `full_width` makes it as wide as that.
    """
    numbers = [[str(cell) for cell in column[1:]] for column in zip(columns, *rows, strict=True)]
    widths = [
        max(len(title), *map(len, cells)) if cells else len(title)
        for title, cells in zip(columns, numbers, strict=True)
    ]
    left = width - _FRAME * len(columns) - 1 - sum(widths[1:])
    names = short_names([row[0] for row in rows], max(left, _SHORTEST))
    table = Table(
        title=None if title is None else Text(title, style="italic"),
        width=width if full_width else None,
    )
    for index, column in enumerate(columns):
        justify = "right" if index else "left"
        table.add_column(column, justify=justify, no_wrap=index > 0, overflow="fold")  # type: ignore[arg-type]
    for name, row in zip(names, rows, strict=True):
        table.add_row(Text(name), *(Text(cell) for cell in row[1:]))
    needed = sum(widths[1:]) + _SHORTEST + _FRAME * len(columns) + 1
    return rendered(table, width=max(width, needed))


def counted(number: int, word: str) -> str:
    """Return a number with a noun, in the singular or the plural."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def paragraph(text: str, width: int = WIDTH) -> str:
    """Return a text in lines of at most this width."""
    return rendered(Text(text), width=width)


def rendered(renderable: object, width: int = WIDTH) -> str:
    """Return what rich prints, without colours and without spaces at the ends of lines."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, force_terminal=False, color_system=None)
    console.print(renderable, highlight=False)
    return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().splitlines())
