"""SciPy and torch bring a thread pool each; this keeps one out of the other's way.

A worker of OpenBLAS spins for a while after its work is done, and on a machine with few cores torch
waits for it: after each factorization, all torch does takes twice as long for some 50 ms.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

_WORTHWHILE = 2048  # columns from which a factorization gains more than torch loses


def quiet_scipy(n: int) -> AbstractContextManager[Any]:
    """SciPy in the caller's thread alone, unless the matrix is large."""
    return nullcontext() if n > _WORTHWHILE else _pools().limit(limits=1)


@cache
def _pools() -> ThreadpoolController:
    return ThreadpoolController().select(internal_api="openblas")
