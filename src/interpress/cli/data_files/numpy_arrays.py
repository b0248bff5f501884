"""Read the arrays of NumPy files, without running pickled code."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from interpress.errors import StorageError


def read_numpy(path: Path) -> dict[str, Tensor]:
    """Return the arrays of an .npz file by name, or that of an .npy file as "array"."""
    try:
        with open(path, "rb") as file:
            content = np.load(file, allow_pickle=False)
            arrays = {"array": content} if isinstance(content, np.ndarray) else dict(content)
        return {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}
    except (ValueError, OSError, TypeError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise StorageError(
            f"{path} is not a file of numeric arrays ({type(error).__name__}: {error}); save "
            "arrays of numbers with numpy.save or numpy.savez"
        ) from error
