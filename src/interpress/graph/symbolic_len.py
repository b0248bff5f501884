"""Let `len(tensor)` be a symbol while a model is captured.

Python's `len` returns an integer, so a model that calls `len(x)` would be captured for one batch
size only, although `x.shape[0]` would not.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import SymInt, Tensor


@contextmanager
def symbolic_len() -> Iterator[None]:
    """Make `len` return the first size of a tensor where that is a symbol.

    It is replaced in the whole process, so the caller holds a lock. For everything else `len` does
    what it always does.
    """
    usual = builtins.len

    def length(value: Any, /) -> Any:
        if isinstance(value, Tensor) and value.ndim:
            first: Any = value.shape[0]
            if isinstance(first, SymInt):
                return first
        return usual(value)

    replaced: Any = builtins
    replaced.len = length
    try:
        yield
    finally:
        replaced.len = usual
