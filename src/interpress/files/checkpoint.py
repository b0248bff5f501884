"""A folder that holds what a run has finished, so that a run that was ended goes on from there.

Every part is one safetensors file, written beside its target and then moved into place. So a part
is there completely or not at all. Of several processes, only the first reads and writes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from interpress.errors import StorageError
from interpress.files.tensor_file import load_tensors, save_tensors, source_path, target_path
from interpress.parallel.processes import Processes

_KIND = "checkpoint"
_IDENTITY = "run"


def digest(value: Any) -> str:
    """Return a short digest of what JSON can hold."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Part(NamedTuple):
    """What one step has finished: tensors, and a record that JSON can hold."""

    tensors: dict[str, Tensor]
    record: Any


class Checkpoint:
    """The finished parts of one run; without a folder, nothing is kept."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @classmethod
    def open(cls, folder: str | os.PathLike[str], identity: Mapping[str, str]) -> Checkpoint:
        """Return the checkpoint in a folder; raise if it belongs to another run.

        `identity` has a digest per thing that must be the same: the model, the data, the options.
        """
        checkpoint = cls(target_path(folder))
        if Processes().is_first:
            checkpoint._begin(identity)
        Processes().gathered(None)
        return checkpoint

    @property
    def is_kept(self) -> bool:
        """Whether anything is kept."""
        return self._folder is not None

    def free_bytes(self) -> int:
        """Return how much room is left where the folder is."""
        return 0 if self._folder is None else shutil.disk_usage(self._folder).free

    def _begin(self, identity: Mapping[str, str]) -> None:
        assert self._folder is not None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            others = [path.name for path in self._folder.iterdir() if path.suffix != ".tmp"]
        except OSError as error:
            raise StorageError(
                f"checkpoint={str(self._folder)!r} cannot be a folder ({error.strerror}); choose "
                "another path"
            ) from error
        path = self._path(_IDENTITY)
        if not path.is_file():
            if others:
                raise StorageError(
                    f"{self._folder} holds other files ({others[0]}), and no checkpoint; choose an "
                    "empty folder or a new path"
                )
            save_tensors(path, _KIND, {}, {"record": json.dumps(dict(identity))})
            return
        stored = self._read(_IDENTITY).record
        for name, digest in identity.items():
            if stored.get(name) != digest:
                raise StorageError(
                    f"{self._folder} is the checkpoint of a run with another {name}; choose "
                    f"another folder, remove this one, or run with the same {name}"
                )

    def load(self, name: str) -> Part | None:
        """Return a finished part; None if it is not there."""
        if self._folder is None:
            return None
        processes = Processes()
        part = None
        if processes.is_first and self._path(name).is_file():
            part = self._read(name)
        return processes.from_process(0, (part,) if processes.is_first else None)[0]

    def save(self, name: str, tensors: Mapping[str, Tensor], record: Any) -> None:
        """Keep a part, in the place of an earlier one of that name."""
        if self._folder is None or not Processes().is_first:
            return
        try:
            save_tensors(self._path(name), _KIND, tensors, {"record": json.dumps(record)})
        except StorageError as error:
            raise StorageError(
                f"{error}. The checkpoint in {self._folder} holds what was finished before; make "
                "room and run again to go on from there"
            ) from error

    def _read(self, name: str) -> Part:
        tensors, fields = load_tensors(self._path(name), _KIND)
        return Part(tensors, json.loads(fields["record"]))

    def _path(self, name: str) -> Path:
        assert self._folder is not None
        return source_path(self._folder / f"{name}.safetensors")
