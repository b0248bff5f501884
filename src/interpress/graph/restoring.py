"""Finish what must be restored, even if an interrupt arrives in the middle."""

from __future__ import annotations

from collections.abc import Callable

_ATTEMPTS = 10  # an error that comes back this often is not an interrupt


def finish(restore: Callable[[], None]) -> None:
    """Call an idempotent function until it has run to its end; then raise what interrupted it."""
    interrupt: BaseException | None = None
    for _ in range(_ATTEMPTS):
        try:
            restore()
            break
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
