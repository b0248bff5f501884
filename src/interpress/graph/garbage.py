"""Keep Python's garbage collector from searching objects that outlive a call."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def old_objects_set_aside() -> Iterator[None]:
    """Let the garbage collector look only at objects that the body makes.

    A process that has imported torch holds some 400,000 objects. A capture makes many small ones,
    so the collector would search all of them several times, 0.2 s each. Where something is set
    aside already, by the caller or by an outer call, nothing is changed.
    """
    if gc.get_freeze_count() or not gc.isenabled():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
