"""interpress: smaller PyTorch networks that keep making the same decisions."""

from interpress.agreement import Agreement, agreement
from interpress.analysis import Analysis
from interpress.api import analyze, compress
from interpress.archive import load
from interpress.errors import (
    ArgumentError,
    CaptureError,
    DataError,
    InterpressError,
    StorageError,
    SurgeryError,
)
from interpress.find import find_spaces
from interpress.graph.spaces import ChannelSpace, Spaces
from interpress.knowledge import MemorizedWarning
from interpress.linalg import Interpolation, interpolative_decomposition
from interpress.result import Result
from interpress.surgery import shrink

__version__ = "0.1.0"

__all__ = [
    "Agreement",
    "Analysis",
    "ArgumentError",
    "CaptureError",
    "ChannelSpace",
    "DataError",
    "Interpolation",
    "InterpressError",
    "MemorizedWarning",
    "Result",
    "Spaces",
    "StorageError",
    "SurgeryError",
    "__version__",
    "agreement",
    "analyze",
    "compress",
    "find_spaces",
    "interpolative_decomposition",
    "load",
    "shrink",
]
