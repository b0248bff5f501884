"""Time and errors of `interpolative_decomposition` at a given k, compared with pivoted QR."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np
import scipy.linalg
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from benchmarks.experiment import Row
from benchmarks.tables import table
from interpress import interpolative_decomposition

SIZES = [256, 512, 1024, 2048, 4096]
INPUTS = {"float64, n rows": (1, torch.float64), "float32, 2n rows": (2, torch.float32)}
_PAUSE = 0.03  # seconds in which the worker threads of the previous run fall asleep
_LONG_RUN = 4.0  # seconds after which a run is not repeated


def gaussian(rows: int, n: int) -> Tensor:
    """Return independent normal entries."""
    return _normal(rows, n, 0)


def decaying(rows: int, n: int) -> Tensor:
    """Return singular values that fall by five decades."""
    left, right = torch.linalg.qr(_normal(rows, n, 0)).Q, torch.linalg.qr(_normal(n, n, 1)).Q
    return left * torch.logspace(0, -5, n, dtype=torch.float64) @ right


def low_rank_plus_noise(rows: int, n: int) -> Tensor:
    """Return a matrix of rank n/4 plus noise of relative size 1e-3, as activations have it."""
    core = n // 4
    signal = _normal(rows, core, 0) @ _normal(core, n, 1) / core**0.5
    return signal + 1e-3 * _normal(rows, n, 2)


FAMILIES = {family.__name__: family for family in (gaussian, decaying, low_rank_plus_noise)}


def _normal(rows: int, n: int, seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((rows, n)))


def cases(n: int) -> Iterator[tuple[str, str, int]]:
    """Yield (input, family, k); the largest sizes get fewer, because SciPy takes long there."""
    for title in INPUTS:
        yield title, "gaussian", n // 2
        if n <= 1024:
            yield title, "gaussian", n // 4
            yield title, "decaying", n // 2
        if n <= 2048:
            yield title, "low_rank_plus_noise", n // 2


def compare(n: int, thread_counts: list[int]) -> list[Row]:
    """Return one row for each case and number of threads."""
    return [
        compare_case(n, title, family, k, threads)
        for title, family, k in cases(n)
        for threads in thread_counts
    ]


def compare_case(n: int, title: str, family: str, k: int, threads: int) -> Row:
    """Return the median times of both contenders, run in turn, and the ratios of their errors.

    Errors are compared with those of pivoted QR in float64: rounding changes the pivots of a
    float32 factorisation, and with them its spectral error by up to a tenth, in either direction.
    """
    rows_per_column, dtype = INPUTS[title]
    A = FAMILIES[family](rows_per_column * n, n).to(dtype)
    row: Row = {"n": n, "input": title, "family": family, "k": k, "threads": threads}
    with _limited_threads(threads):
        (row["ours"], result), (row["scipy"], (R, _)) = _median_times(
            lambda: interpolative_decomposition(A, k=k), lambda: pivoted_qr(A.numpy(), k)
        )
        if dtype != torch.float64:
            R, _ = pivoted_qr(A.double().numpy(), k)
        R22 = torch.from_numpy(R[k:, k:])
        row["frobenius"] = result.frobenius_error / float(R22.norm())
        scipy_square = float(torch.linalg.eigvalsh(R22 @ R22.T)[-1])
        row["spectral"] = result.spectral_error / scipy_square**0.5
    return row


def pivoted_qr(matrix: np.ndarray[Any, Any], k: int) -> tuple[np.ndarray[Any, Any], object]:
    """Return SciPy's triangular factor in the dtype of the matrix, and the coefficients of `T`."""
    R, _ = scipy.linalg.qr(matrix, mode="r", pivoting=True)
    return R, scipy.linalg.solve_triangular(R[:k, :k], R[:k, k:])


@contextmanager
def _limited_threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with ThreadpoolController().select(internal_api="openblas").limit(limits=threads):
            yield
    finally:
        torch.set_num_threads(before)


def _median_times(*contenders: Callable[[], Any]) -> list[tuple[float, Any]]:
    """Return the median time and the last result of each contender; they run in turn."""
    times: list[list[float]] = [[] for _ in contenders]
    results: list[Any] = [None for _ in contenders]
    repeats = 15
    while len(times[0]) < repeats:
        for index, work in enumerate(contenders):
            if torch.get_num_threads() > 1:
                time.sleep(_PAUSE)
            started = time.perf_counter()
            results[index] = work()
            times[index].append(time.perf_counter() - started)
        slowest = max(max(taken) for taken in times)
        repeats = 1 if slowest > _LONG_RUN else 3 if slowest > 0.3 else 7 if slowest > 0.1 else 15
    return [(median(taken), result) for taken, result in zip(times, results, strict=True)]


def decomposition_table(rows: list[Row]) -> str:
    """Return the table of times, ratios and errors."""
    caption = (
        "`interpolative_decomposition(A, k=...)` against `scipy.linalg.qr(A, mode='r', "
        "pivoting=True)` with the triangular solve for `T`, both in the dtype of `A` and with the "
        "same number of threads: medians of runs in turn. The ratio is SciPy's time divided by "
        "that of interpress. The errors are those of interpress divided by those of pivoted QR of "
        "the same numbers in float64; both are computed after the timing."
    )
    header = ["A", "family", "n", "k", "threads", "interpress, ms", "SciPy, ms", "ratio"]
    header += ["spectral error", "Frobenius error"]
    lines = [
        [
            row["input"],
            row["family"].replace("_", " "),
            *(str(row[name]) for name in ("n", "k", "threads")),
            *(f"{1e3 * row[name]:.1f}" for name in ("ours", "scipy")),
            f"{row['scipy'] / row['ours']:.2f}",
            *(f"{row[name]:.4f}" for name in ("spectral", "frobenius")),
        ]
        for row in sorted(rows, key=lambda row: (row["input"], row["family"], row["n"]))
    ]
    return f"{caption}\n\n" + table(header, lines)
