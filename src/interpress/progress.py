"""One small seam for progress: a bar on a terminal, silence elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextlib.contextmanager
def stages(title: str, count: int, show: bool | None = None) -> Iterator[Callable[[str], None]]:
    """A bar over a few stages; call what it yields at the start of each but the first.

    `show=None` shows it where standard error is a terminal.
    """
    visible = sys.stderr.isatty() if show is None else show
    columns = (
        TextColumn("{task.description}"), BarColumn(24), TimeElapsedColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(
        *columns, console=Console(stderr=True), disable=not visible, transient=True
    ) as bar:
        task = bar.add_task(title, total=count)

        def step(name: str) -> None:
            bar.update(task, advance=1, description=f"{title}: {name}")

        yield step
