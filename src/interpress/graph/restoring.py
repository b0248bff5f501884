"""Finish what must be restored, even if an interrupt arrives in the middle."""

from __future__ import annotations

from collections.abc import Callable


def finish(restore: Callable[[], None]) -> None:
    """Call an idempotent function until it has run to its end; then raise what interrupted it."""
    interrupt: KeyboardInterrupt | None = None
    while True:
        try:
            restore()
            break
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
