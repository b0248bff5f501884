"""The smaller network in the form that its original was read from, as a file beside the plan."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from interpress.onnx_files.source import source_of
from interpress.onnx_files.write import save_onnx

_ONNX = "model.onnx"
NATIVE = (_ONNX, f"{_ONNX}.data")
"""The names of all such files."""


def write_native(original: nn.Module, smaller: nn.Module, folder: Path) -> None:
    """Write that file, if the original was read from one."""
    if source_of(original) is not None:
        save_onnx(original, smaller, folder / _ONNX, overwrite=False)
