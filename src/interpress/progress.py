"""One small seam for progress: a bar on a terminal, silence elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Advance(Protocol):
    """Call it with how much was done, and with a new title if there is one."""

    def __call__(self, amount: float = 1, title: str | None = None) -> None:
        """Report progress."""


class Bars:
    """Bars for one job after the other, each with an estimate of the time left."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars

    @contextlib.contextmanager
    def job(self, title: str, total: float | None) -> Iterator[Advance]:
        """A bar for one job; call what it yields with how much was done."""
        task = self._bars.add_task(title, total=total)

        def advance(amount: float = 1, title: str | None = None) -> None:
            self._bars.update(task, advance=amount, description=title)

        try:
            yield advance
        finally:
            self._bars.remove_task(task)


@contextlib.contextmanager
def bars(show: bool | None = None) -> Iterator[Bars]:
    """A place for bars. `show=None` shows them where standard error is a terminal."""
    visible = sys.stderr.isatty() if show is None else show
    columns = (
        TextColumn("{task.description}"), BarColumn(24), TimeElapsedColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(
        *columns, console=Console(stderr=True), disable=not visible, transient=True
    ) as progress:
        yield Bars(progress)


@contextlib.contextmanager
def stages(title: str, count: int, show: bool | None = None) -> Iterator[Callable[[str], None]]:
    """A bar over a few stages; call what it yields at the start of each but the first."""
    with bars(show) as places, places.job(title, count) as advance:
        yield lambda name: advance(1, f"{title}: {name}")
