"""SciPy and torch bring a thread pool each; this keeps one out of the other's way.

A worker of OpenBLAS spins for a while after its work is done, and where there are few cores, torch
waits for it: after each factorization, all that torch does is slow for a while.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

from threadpoolctl import ThreadpoolController

WORTHWHILE = 2048  # columns above which a factorization gains more than torch loses
_LIMITING = Lock()  # the limit is the process's: two at once would restore each other's


@contextmanager
def quiet_scipy(n: int) -> Iterator[None]:
    """SciPy in the caller's thread alone, unless the matrix has many columns."""
    if n > WORTHWHILE:
        yield
        return
    with _LIMITING, _pools().limit(limits=1):
        yield


@cache
def _pools() -> ThreadpoolController:
    return ThreadpoolController().select(internal_api="openblas")
