"""A limit on the threads of SciPy, which otherwise slow torch down.

SciPy and torch each have a thread pool. The worker threads of SciPy's OpenBLAS spin for a while
after their work is done. On a machine with few cores, torch then waits for them after every SciPy
factorisation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

from threadpoolctl import ThreadpoolController

# Columns up to which SciPy gets one thread. A larger factorisation gains more from the threads of
# SciPy than torch loses afterwards.
LARGEST_SINGLE_THREADED = 2048
# The limit applies to the whole process. Two overlapping limits would restore each other's value.
_LIMIT_LOCK = Lock()


@contextmanager
def single_threaded_scipy(n: int) -> Iterator[None]:
    """Limit SciPy to one thread while it factors a matrix of n columns, unless n is large."""
    if n > LARGEST_SINGLE_THREADED:
        yield
        return
    with _LIMIT_LOCK, _openblas_pools().limit(limits=1):
        yield


@cache
def _openblas_pools() -> ThreadpoolController:
    return ThreadpoolController().select(internal_api="openblas")
