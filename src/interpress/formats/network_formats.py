"""The kinds of files that hold a network. A new kind is one entry of `FORMATS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from interpress.exported_programs.read import is_exported, read_exported
from interpress.exported_programs.source import exported_source
from interpress.exported_programs.write import save_exported
from interpress.onnx_files.read import is_onnx, read_onnx
from interpress.onnx_files.source import source_of
from interpress.onnx_files.write import save_onnx


@dataclass(frozen=True)
class NetworkFormat:
    """How one kind of file is read and written."""

    name: str
    files: tuple[str, ...]
    """The files of a smaller network in a result folder; the first is always there."""
    accepts: Callable[[Any], bool]
    """Whether an object is such a file, its path, or what it holds."""
    read: Callable[[Any], nn.Module]
    made: Callable[[nn.Module], bool]
    """Whether a network was read from such a file."""
    write: Callable[[nn.Module, nn.Module, Path], object]
    """Write the smaller one (second) of a network that was read (first)."""


FORMATS = (
    NetworkFormat(
        name="ONNX file",
        files=("model.onnx", "model.onnx.data"),
        accepts=is_onnx,
        read=read_onnx,
        made=lambda network: source_of(network) is not None,
        write=lambda original, smaller, path: save_onnx(original, smaller, path, overwrite=False),
    ),
    NetworkFormat(
        name="exported program",
        files=("model.pt2",),
        accepts=is_exported,
        read=read_exported,
        made=lambda network: exported_source(network) is not None,
        write=lambda original, smaller, path: save_exported(
            original, smaller, path, overwrite=False
        ),
    ),
)
FORMAT_FILES = tuple(name for kind in FORMATS for name in kind.files)
"""The names of all such files in a result folder."""


def is_network_file(model: Any) -> bool:
    """Return whether `model` is a file that holds a network, its path, or what it holds."""
    return any(kind.accepts(model) for kind in FORMATS)


def as_network(model: Any) -> Any:
    """Return the network of a file, of its path, or of what it holds; others as they are."""
    for kind in FORMATS:
        if kind.accepts(model):
            return kind.read(model)
    return model


def write_in_format(original: nn.Module, smaller: nn.Module, folder: Path) -> None:
    """Write the smaller network in the form that its original was read from, if from a file."""
    for kind in FORMATS:
        if kind.made(original):
            kind.write(original, smaller, folder / kind.files[0])
