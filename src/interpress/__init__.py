"""interpress: smaller PyTorch networks that keep making the same decisions."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from interpress._version import __version__

if TYPE_CHECKING:
    from interpress.analysis import Analysis as Analysis
    from interpress.api import analyze as analyze
    from interpress.api import compress as compress
    from interpress.api import distill as distill
    from interpress.api import find_spaces as find_spaces
    from interpress.distillation.record import Distillation as Distillation
    from interpress.distillation.run import Distilled as Distilled
    from interpress.errors import ArgumentError as ArgumentError
    from interpress.errors import CaptureError as CaptureError
    from interpress.errors import DataError as DataError
    from interpress.errors import InterpressError as InterpressError
    from interpress.errors import StorageError as StorageError
    from interpress.errors import SurgeryError as SurgeryError
    from interpress.evaluation.agreement import agreement as agreement
    from interpress.evaluation.memorized import MemorizedWarning as MemorizedWarning
    from interpress.evaluation.output_errors import OtherOutput as OtherOutput
    from interpress.evaluation.tally import Agreement as Agreement
    from interpress.exported_programs.read import read_exported as read_exported
    from interpress.linalg import Interpolation as Interpolation
    from interpress.linalg import interpolative_decomposition as interpolative_decomposition
    from interpress.method import METHODS as METHODS
    from interpress.method import Method as Method
    from interpress.onnx_files.compare import OnnxReport as OnnxReport
    from interpress.onnx_files.read import read_onnx as read_onnx
    from interpress.pipeline.warn import FewExamplesWarning as FewExamplesWarning
    from interpress.pipeline.warn import RuinedWarning as RuinedWarning
    from interpress.result import Result as Result
    from interpress.spaces.channel_space import ChannelSpace as ChannelSpace
    from interpress.spaces.spaces import Spaces as Spaces
    from interpress.storage.result_folder import load as load
    from interpress.surgery.shrink import shrink as shrink

# The module of every public name. They are imported on first use, so that `import interpress`
# does not import torch.
_HOMES = {
    "METHODS": "method",
    "Agreement": "evaluation.tally",
    "Analysis": "analysis",
    "ArgumentError": "errors",
    "CaptureError": "errors",
    "ChannelSpace": "spaces.channel_space",
    "DataError": "errors",
    "Distillation": "distillation.record",
    "Distilled": "distillation.run",
    "Interpolation": "linalg",
    "InterpressError": "errors",
    "FewExamplesWarning": "pipeline.warn",
    "MemorizedWarning": "evaluation.memorized",
    "Method": "method",
    "OnnxReport": "onnx_files.compare",
    "OtherOutput": "evaluation.output_errors",
    "Result": "result",
    "RuinedWarning": "pipeline.warn",
    "Spaces": "spaces.spaces",
    "StorageError": "errors",
    "SurgeryError": "errors",
    "agreement": "evaluation.agreement",
    "analyze": "api",
    "compress": "api",
    "distill": "api",
    "find_spaces": "api",
    "interpolative_decomposition": "linalg",
    "load": "storage.result_folder",
    "read_exported": "exported_programs.read",
    "read_onnx": "onnx_files.read",
    "shrink": "surgery.shrink",
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
