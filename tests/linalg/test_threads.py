"""SciPy gets one thread for small matrices, and its thread count is restored afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from threadpoolctl import ThreadpoolController

from interpress import interpolative_decomposition
from interpress.linalg.cholesky import pivoted_cholesky
from interpress.linalg.threads import (
    LARGEST_IN_ONE_THREAD,
    LARGEST_SINGLE_THREADED,
    single_threaded_scipy,
    threads_for_scipy_only,
)

POOLS = ThreadpoolController().select(internal_api="openblas")

pytestmark = pytest.mark.skipif(not POOLS.info(), reason="SciPy has no OpenBLAS here")


def _threads() -> list[int]:
    return [pool["num_threads"] for pool in POOLS.info()]


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    with POOLS.limit(limits=2):
        yield


def test_small_matrices_are_factored_in_one_thread() -> None:
    before = _threads()
    with single_threaded_scipy(LARGEST_SINGLE_THREADED):
        assert set(_threads()) == {1}
    assert _threads() == before


def test_large_matrices_keep_all_threads() -> None:
    before = _threads()
    with single_threaded_scipy(LARGEST_SINGLE_THREADED + 1):
        assert _threads() == before


def test_an_error_restores_the_threads() -> None:
    before = _threads()
    with pytest.raises(ZeroDivisionError), single_threaded_scipy(10):
        1 / 0  # noqa: B018
    assert _threads() == before


def test_concurrent_factorizations_restore_the_threads() -> None:
    before = _threads()
    Z = torch.randn(128, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    G = Z.T @ Z
    with ThreadPoolExecutor(8) as workers:
        orders = list(workers.map(lambda _: pivoted_cholesky(G, 0.0).order, range(64)))
    assert all(torch.equal(order, orders[0]) for order in orders)
    assert _threads() == before


@pytest.mark.parametrize(
    ("torch_threads", "n", "expected"),
    [
        (2, LARGEST_IN_ONE_THREAD, 1),
        (2, LARGEST_IN_ONE_THREAD + 1, 2),
        (1, LARGEST_IN_ONE_THREAD + 1, 1),
    ],
)
def test_scipy_takes_over_the_threads_of_torch(torch_threads: int, n: int, expected: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(torch_threads)
    try:
        with threads_for_scipy_only(n):
            assert torch.get_num_threads() == 1
            assert set(_threads()) == {expected}
        assert torch.get_num_threads() == torch_threads
        assert set(_threads()) == {2}
        with pytest.raises(ZeroDivisionError), threads_for_scipy_only(n):
            1 / 0  # noqa: B018
        assert torch.get_num_threads() == torch_threads
        assert set(_threads()) == {2}
    finally:
        torch.set_num_threads(before)


def test_concurrent_decompositions_restore_the_threads() -> None:
    A = torch.randn(300, 256, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with ThreadPoolExecutor(4) as workers:
            list(workers.map(lambda _: interpolative_decomposition(A, k=64), range(8)))
        assert torch.get_num_threads() == 2
        assert set(_threads()) == {2}
    finally:
        torch.set_num_threads(before)
