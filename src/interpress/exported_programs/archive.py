"""Read a `.pt2` file without running anything that it may contain.

Such a file is a zip archive. `torch.export.load` unpickles some of its members, evaluates symbolic
sizes as Python expressions, imports modules that it names, and loads compiled code. So the archive
is checked before torch reads it, and torch reads a copy that has neither example inputs, which are
always pickled, nor anything that the network does not need.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from interpress.errors import StorageError
from interpress.exported_programs.content import check_content
from interpress.files.tensor_file import source_path

_MODEL = "models/model.json"
_PAYLOADS = {
    "data/weights/model_weights_config.json": "data/weights/",
    "data/constants/model_constants_config.json": "data/constants/",
}
"""The lists of stored tensors, and the folders that these are in."""
_EXAMPLE_INPUTS = "data/sample_inputs/model.pt"
_EXTRA = "extra/"
_HEADER = ("archive_format", "archive_version", "byteorder", ".data/version")
_AGAIN = "load it with torch.export.load where you trust it, and save it again with this torch"
_FOREIGN = {
    "serialized_exported_program.json": f"was pickled by an older torch; {_AGAIN}",
    "data.pkl": "is a pickle, a TorchScript archive or a truncated file, not an exported program; "
    "write it again with torch.export.save",
}


def load_program(path: str | os.PathLike[str]) -> tuple[ExportedProgram, dict[str, str]]:
    """Return the program of a `.pt2` file, and the texts that were saved with it, by name.

    Its example inputs are not read. Nothing is unpickled and no code of the file runs: an archive
    that needs either is refused before torch reads it.
    """
    source = source_path(path)
    if not source.is_file():
        raise StorageError(f"{source} is not a file; give the path of a .pt2 file")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "program.pt2"
        try:
            with zipfile.ZipFile(source) as archive:
                members = _members(archive, source)
                _check(archive, members, source)
                _copy(archive, members, copy)
                extra = {
                    name.removeprefix(_EXTRA): archive.read(members[name]).decode()
                    for name in members
                    if name.startswith(_EXTRA) and name != _EXTRA
                }
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch.export warns about torch's internals
                return torch.export.load(copy), extra
        except StorageError:
            raise
        except Exception as error:  # zipfile, json and torch raise many types
            line = next(iter(str(error).splitlines()), "")
            raise StorageError(
                f"{source} cannot be read as an exported program ({type(error).__name__}: {line}); "
                "write it again with torch.export.save"
            ) from error


def _members(archive: zipfile.ZipFile, source: Path) -> dict[str, str]:
    """Return the names of the members in the archive, by their names below its first folder."""
    members: dict[str, str] = {}
    for full in archive.namelist():
        name = full.partition("/")[2] or full
        if name in members:
            raise StorageError(f"{source} holds {name!r} twice; write it again")
        members[name] = full
    return members


def _check(archive: zipfile.ZipFile, members: Mapping[str, str], source: Path) -> None:
    """Refuse an archive that torch could read only by running something in it."""
    for name, reason in _FOREIGN.items():
        if name in members or f"{source.stem}/{name}" in members:
            raise StorageError(f"{source} {reason}")
    for name in members:
        if name.startswith("data/aotinductor/"):
            raise StorageError(
                f"{source} holds compiled code ({name}); give the program that it was compiled from"
            )
        if name in ("data/weights/model.pt", "data/constants/model.pt"):
            raise StorageError(f"{source} holds pickled tensors ({name}); {_AGAIN}")
    missing = [name for name in (_MODEL, *_PAYLOADS) if name not in members]
    if missing:
        raise StorageError(
            f"{source} lacks {missing[0]}; give a file that torch.export.save wrote, with one model"
        )
    for config in _PAYLOADS:
        for name, payload in _json(archive, members[config])["config"].items():
            if payload["use_pickle"] is not False or payload["tensor_meta"] is None:
                raise StorageError(
                    f"{source} holds {name!r} as a pickle, which could run code when it is read; "
                    "replace this tensor subclass or custom object by plain tensors, and export "
                    "again"
                )
    check_content(_json(archive, members[_MODEL]), str(source))


def _json(archive: zipfile.ZipFile, name: str) -> Any:
    return json.loads(archive.read(name))


def _copy(archive: zipfile.ZipFile, members: Mapping[str, str], target: Path) -> None:
    """Write an archive that holds only what was checked."""
    with zipfile.ZipFile(target, "w") as copy:
        for name in _needed(archive, members):
            with archive.open(members[name]) as stored, copy.open(f"program/{name}", "w") as new:
                while block := stored.read(1 << 24):
                    new.write(block)
        copy.writestr(f"program/{_EXAMPLE_INPUTS}", b"")


def _needed(archive: zipfile.ZipFile, members: Mapping[str, str]) -> Iterator[str]:
    """Yield the members that hold the network: its graph, its tensors and the lists of them."""
    yield from (name for name in _HEADER if name in members)
    yield _MODEL
    for config, folder in _PAYLOADS.items():
        yield config
        payloads = _json(archive, members[config])["config"].values()
        yield from dict.fromkeys(folder + payload["path_name"] for payload in payloads)
