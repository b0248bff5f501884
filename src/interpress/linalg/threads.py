"""Limits on the threads of SciPy and torch, which otherwise slow each other down.

SciPy and torch each have a thread pool. The worker threads of SciPy's OpenBLAS spin for a while
after their work is done. On a machine with few cores, torch then waits for them after every SciPy
factorisation. Waking a pool takes milliseconds, in which one thread factors a small matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from threading import Lock

import torch
from threadpoolctl import ThreadpoolController

# Columns up to which SciPy gets one thread. A larger factorisation gains more from the threads of
# SciPy than torch loses afterwards.
LARGEST_SINGLE_THREADED = 2048
LARGEST_IN_ONE_THREAD = 512
"""Columns up to which a whole decomposition runs in one thread, its matrix products included."""
# The limits apply to the whole process. Two overlapping limits would restore each other's value.
_LIMIT_LOCK = Lock()
_TORCH_LIMIT_LOCK = Lock()


@contextmanager
def single_threaded_scipy(n: int) -> Iterator[None]:
    """Limit SciPy to one thread while it factors a matrix of n columns, unless n is large."""
    if n > LARGEST_SINGLE_THREADED:
        yield
        return
    with _LIMIT_LOCK, _openblas_pools().limit(limits=1):
        yield


@contextmanager
def threads_for_scipy_only(n: int) -> Iterator[None]:
    """Limit torch to one thread; SciPy keeps its threads unless n is small or torch had only one.

    For work whose large products are all computed by SciPy.
    """
    with _TORCH_LIMIT_LOCK:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            single = threads == 1 or n <= LARGEST_IN_ONE_THREAD
            with single_threaded_scipy(0) if single else nullcontext():
                yield
        finally:
            torch.set_num_threads(threads)


@cache
def _openblas_pools() -> ThreadpoolController:
    return ThreadpoolController().select(internal_api="openblas")
