"""Import onnx and ONNX Runtime on first use: they are an optional extra."""

from __future__ import annotations

import importlib
from typing import Any

from interpress.errors import ArgumentError


def onnx_library() -> Any:
    """Return the onnx package, or raise an error that says how to install it."""
    return _imported("onnx", "ONNX files")


def onnx_part(name: str) -> Any:
    """Return a part of the onnx package that is not imported with it, such as "reference"."""
    return _imported(f"onnx.{name}", "ONNX files")


def onnx_runtime() -> Any:
    """Return ONNX Runtime, or raise an error that says how to install it."""
    return _imported("onnxruntime", "running ONNX files")


def has_onnx_runtime() -> bool:
    """Return whether ONNX Runtime can be imported."""
    try:
        importlib.import_module("onnxruntime")
    except ImportError:
        return False
    return True


def _imported(name: str, purpose: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ArgumentError(
            f"{purpose} need the package {name}: pip install 'interpress[onnx]'"
        ) from error
