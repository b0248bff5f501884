"""interpress: smaller PyTorch networks that keep making the same decisions."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from interpress.analysis import Analysis as Analysis
    from interpress.api import analyze as analyze
    from interpress.api import compress as compress
    from interpress.archive import load as load
    from interpress.comparison import Agreement as Agreement
    from interpress.comparison import agreement as agreement
    from interpress.errors import ArgumentError as ArgumentError
    from interpress.errors import CaptureError as CaptureError
    from interpress.errors import DataError as DataError
    from interpress.errors import InterpressError as InterpressError
    from interpress.errors import StorageError as StorageError
    from interpress.errors import SurgeryError as SurgeryError
    from interpress.find import find_spaces as find_spaces
    from interpress.graph.spaces import ChannelSpace as ChannelSpace
    from interpress.graph.spaces import Spaces as Spaces
    from interpress.knowledge import MemorizedWarning as MemorizedWarning
    from interpress.linalg import Interpolation as Interpolation
    from interpress.linalg import interpolative_decomposition as interpolative_decomposition
    from interpress.result import Result as Result
    from interpress.surgery import shrink as shrink

# Where public names live; loaded when first used, so that importing interpress costs no time.
_HOMES = {
    "Agreement": "comparison",
    "Analysis": "analysis",
    "ArgumentError": "errors",
    "CaptureError": "errors",
    "ChannelSpace": "graph.spaces",
    "DataError": "errors",
    "Interpolation": "linalg",
    "InterpressError": "errors",
    "MemorizedWarning": "knowledge",
    "Result": "result",
    "Spaces": "graph.spaces",
    "StorageError": "errors",
    "SurgeryError": "errors",
    "agreement": "comparison",
    "analyze": "api",
    "compress": "api",
    "find_spaces": "find",
    "interpolative_decomposition": "linalg",
    "load": "archive",
    "shrink": "surgery",
}

__all__ = [*sorted(_HOMES), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"interpress.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
