"""Write a whole folder beside its target, then move it into place."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from interpress.errors import StorageError


@contextlib.contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder; if the body succeeds, it becomes the target."""
    temporary = target.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        temporary.mkdir(parents=True)
        yield temporary
        move_into_place(temporary, target)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(
            f"cannot write {target}: {error.strerror or error}; nothing was changed. Choose a "
            "place that is writable and has room"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def move_into_place(temporary: Path, target: Path) -> None:
    """Move a folder into place; an old one is deleted only once the new one is there.

    Another process may do the same at the same time: the last one wins, and none leaves a trace.
    """
    moved_away: list[Path] = []
    try:
        while True:
            try:
                os.replace(temporary, target)
                break
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            old = target.parent / f".{uuid.uuid4().hex}.old"
            try:
                os.replace(target, old)
                moved_away.append(old)
            except FileNotFoundError:  # another process moved it away
                continue
    except BaseException:
        if moved_away and not target.exists():
            os.replace(moved_away.pop(), target)
        raise
    finally:
        for old in moved_away:
            shutil.rmtree(old, ignore_errors=True)
