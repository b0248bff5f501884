"""interpress: smaller PyTorch networks that keep making the same decisions."""

from interpress.errors import ArgumentError, DataError, InterpressError, StorageError
from interpress.linalg import Interpolation, interpolative_decomposition

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "DataError",
    "Interpolation",
    "InterpressError",
    "StorageError",
    "__version__",
    "interpolative_decomposition",
]
