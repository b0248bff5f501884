"""Progress bars: shown on a terminal, silent elsewhere."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_log = logging.getLogger("interpress")


class Advance(Protocol):
    """Report that some of a task is done, and optionally change its title."""

    def __call__(self, amount: float = 1, title: str | None = None) -> None:
        """Advance the bar by `amount`."""


class Display:
    """Shows one bar per task, each with an estimate of the time left."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def note(self, text: str) -> None:
        """Print a sentence above the bars, and log it."""
        _log.info(text)
        if not self._progress.disable:
            self._progress.console.print(text, highlight=False, soft_wrap=True)

    @contextlib.contextmanager
    def task(self, title: str, total: float | None) -> Iterator[Advance]:
        """Show a bar while the body runs; the body calls the yielded function to advance it."""
        task = self._progress.add_task(title, total=total)

        def advance(amount: float = 1, title: str | None = None) -> None:
            self._progress.update(task, advance=amount, description=title)

        try:
            yield advance
        finally:
            self._progress.remove_task(task)


@contextlib.contextmanager
def display(show: bool | None = None) -> Iterator[Display]:
    """Yield a display. `show=None` shows bars if standard error is a terminal."""
    visible = sys.stderr.isatty() if show is None else show
    columns = (
        TextColumn("{task.description}"), BarColumn(24), TimeElapsedColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(
        *columns, console=Console(stderr=True), disable=not visible, transient=True
    ) as progress:
        yield Display(progress)


@contextlib.contextmanager
def stages(title: str, count: int, show: bool | None = None) -> Iterator[Callable[[str], None]]:
    """Show a bar over a few stages; the body calls the yielded function when a stage begins."""
    with display(show) as bars, bars.task(title, count) as advance:
        yield lambda name: advance(1, f"{title}: {name}")
