"""interpress: smaller PyTorch networks that keep making the same decisions."""

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
from interpress.linalg import Interpolation, interpolative_decomposition
from interpress.surgery import shrink

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "CaptureError",
    "ChannelSpace",
    "DataError",
    "Interpolation",
    "InterpressError",
    "Spaces",
    "StorageError",
    "SurgeryError",
    "__version__",
    "find_spaces",
    "interpolative_decomposition",
    "shrink",
]
