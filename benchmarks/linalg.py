"""Compare the factorisations of interpress with SciPy's: time, error and size of T.

    python -m benchmarks linalg                       # CPU
    python -m benchmarks linalg --device cuda         # GPU, n = 1024 ... 16384
    python -m benchmarks linalg --sizes 128 256       # quick

Results are written to ``benchmarks/results/linalg-<device>.json`` and ``.md``. On a CPU,
:mod:`benchmarks.decomposition` times `interpolative_decomposition`. Two computations of the
compression are timed on every device. Both end with the order of all columns and the interpolation
matrix at k = n/2:

- *factor*: from the n x n factor of a tap, as a compression does once per tap. interpress starts
  from the Gram matrix, SciPy from the triangular factor of the same rows.
- *rows*: from 4n rows of float32 activations in memory. SciPy gets them as float64.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import scipy.linalg.interpolative
import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from benchmarks.decomposition import SIZES, compare, decomposition_table
from benchmarks.experiment import RESULTS, Row
from benchmarks.matrices import FAMILIES
from benchmarks.provenance import command_of, set_aside, stamp
from benchmarks.tables import table
from interpress.linalg import FactorStream, RFactor, column_ordering, order_by_pivoting

QUALITY_N = 256
METHOD_TITLES = {
    "ours": "interpress",
    "ours_bounded": "interpress, max_entry=2",
    "scipy_qr": "SciPy QR",
    "scipy_interpolative": "interp_decomp",
}
# float64 operations above which a SciPy routine is skipped, because it would take hours
SCIPY_LIMIT = {"qr": 4 * 8192**3, "interpolative": 16 * 512**3}
_LONG_RUN = 10.0  # seconds after which a timing is not repeated


def seconds(work: Callable[[], object], device: torch.device, repeats: int = 3) -> float:
    """Return the shortest of several run times; the first run is a warm-up unless it is long."""
    best = math.inf
    for _ in range(repeats + 1):
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
        if best > _LONG_RUN:
            break
    return best


def activations(n: int, device: torch.device) -> Tensor:
    """Return 4n rows of a ReLU layer on correlated inputs, in float32."""
    torch.manual_seed(0)
    inputs = torch.randn(4 * n, n // 4, device=device)
    return (inputs @ torch.randn(n // 4, n, device=device)).relu_()


def time_size(n: int, device: torch.device) -> Row:
    """Return the run times for n columns; None for what was skipped."""
    Z = activations(n, device)
    k = n // 2
    factor = FactorStream(n).add(Z).factor()
    row: Row = {
        "n": n,
        "ours_factor": seconds(
            lambda: order_by_pivoting(RFactor.from_gram(factor.G, factor.rows)).at_rank(k), device
        ),
        "ours_rows": seconds(
            lambda: order_by_pivoting(FactorStream(n).add(Z).factor()).at_rank(k), device
        ),
        "scipy_factor": None,
        "scipy_rows": None,
        "scipy_interpolative_rows": None,
    }
    host, cpu = Z.cpu().numpy(), torch.device("cpu")
    if 4 * n**3 <= SCIPY_LIMIT["qr"]:
        R = np.asarray(np.linalg.qr(host.astype(np.float64), mode="r"))
        row["scipy_factor"] = seconds(lambda: _scipy_qr(R, k), cpu)
    if 16 * n**3 <= SCIPY_LIMIT["qr"]:
        row["scipy_rows"] = seconds(lambda: _scipy_qr(host.astype(np.float64), k), cpu)
    if 16 * n**3 <= SCIPY_LIMIT["interpolative"]:
        row["scipy_interpolative_rows"] = seconds(
            lambda: scipy.linalg.interpolative.interp_decomp(host.astype(np.float64), k), cpu, 1
        )
    return row


def _scipy_qr(matrix: np.ndarray[Any, Any], k: int) -> None:
    R, _ = scipy.linalg.qr(matrix, mode="r", pivoting=True, check_finite=False)
    scipy.linalg.solve_triangular(R[:k, :k], R[:k, k:], check_finite=False)


def scipy_qr_selection(A: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the kept columns and `T` of SciPy's pivoted QR."""
    R, pivots = scipy.linalg.qr(A.cpu().numpy(), mode="r", pivoting=True)
    T = np.zeros((k, A.shape[1]))
    solved = np.linalg.lstsq(R[:k, :k], R[:k, k:], rcond=None)[0]
    T[:, pivots] = np.hstack([np.eye(k), solved])
    return torch.from_numpy(pivots[:k].astype(np.int64)).to(A.device), torch.from_numpy(T).to(A)


def scipy_interpolative_selection(A: Tensor, k: int) -> tuple[Tensor, Tensor] | None:
    """Return the kept columns and `T` of SciPy's `interp_decomp`."""
    if k > min(A.shape):
        return None  # interp_decomp accepts such a k and then writes outside of its arrays
    index, projection = scipy.linalg.interpolative.interp_decomp(A.cpu().numpy(), k, rand=False)
    T = np.zeros((k, A.shape[1]))
    T[:, index] = np.hstack([np.eye(k), projection])
    return torch.from_numpy(index[:k].astype(np.int64)).to(A.device), torch.from_numpy(T).to(A)


def approximation_errors(A: Tensor, k: int, kept: Tensor, T: Tensor) -> Row:
    """Return the errors of `A ~= A[:, kept] @ T`, computed from the matrix itself.

    `spectral` and `frobenius` are relative to the best rank-k approximation, `relative` to the norm
    of A.
    """
    error = A - A[:, kept] @ T
    tail = torch.linalg.svdvals(A)[k:]
    norm = float(torch.linalg.matrix_norm(A))
    if float(torch.linalg.vector_norm(tail)) <= 1e-12 * norm:
        spectral = frobenius = None  # the best error is rounding, so a ratio has no meaning
    else:
        spectral = float(torch.linalg.matrix_norm(error, 2) / tail[0])
        frobenius = float(torch.linalg.matrix_norm(error) / torch.linalg.vector_norm(tail))
    return {
        "spectral": spectral,
        "frobenius": frobenius,
        "relative": float(torch.linalg.matrix_norm(error)) / norm,
        "max_T": float(T.abs().max()),
    }


def family_errors(name: str, n: int, device: torch.device) -> Row:
    """Return the errors of every method on one family of matrices."""
    A = FAMILIES[name](n, 0).to(device)
    k = n // 2
    ordering = column_ordering(A)
    plain, bounded = ordering.at_rank(k), ordering.at_rank(k, max_entry=2.0)
    selections = {
        "ours": (plain.kept, plain.T),
        "ours_bounded": (bounded.kept, bounded.T),
        "scipy_qr": scipy_qr_selection(A, k),
        "scipy_interpolative": scipy_interpolative_selection(A, k),
    }
    errors = {
        method: None if selection is None else approximation_errors(A, k, *selection)
        for method, selection in selections.items()
    }
    return {"family": name, "n": n, "k": k, **errors}


def markdown(report: Row) -> str:
    """Return the tables of times and errors."""
    return "\n".join([
        f"# Linear algebra on {report['machine']}",
        "",
        f"`{command_of(report)}`, {report['date']}, interpress {report['interpress']}, torch "
        f"{report['torch']}, SciPy {report['scipy']}, {report['threads']} CPU threads.",
        "",
        *([decomposition_table(report["decompositions"])] if "decompositions" in report else []),
        _times_table(report["times"]),
        _errors_table(report["quality"]),
    ])  # fmt: skip


def _times_table(rows: list[Row]) -> str:
    caption = (
        "Seconds until the order of all columns and `T` at k = n/2 are computed, shortest of "
        "several runs; a ratio is SciPy's time divided by that of interpress. SciPy runs on the "
        "CPU of the same machine."
    )
    header = ["n"]
    for start in ("factor", "rows"):
        header += [f"{start}: interpress, s", f"{start}: SciPy QR, s", f"{start}: ratio"]
    header.append("rows: interp_decomp, s")
    lines = []
    for row in rows:
        cells = [str(row["n"])]
        for start in ("factor", "rows"):
            ours, scipys = row[f"ours_{start}"], row[f"scipy_{start}"]
            ratio = "-" if scipys is None else f"{scipys / ours:.1f}"
            cells += [f"{ours:.4f}", _number(scipys), ratio]
        lines.append([*cells, _number(row["scipy_interpolative_rows"])])
    return f"{caption}\n\n" + table(header, lines)


def _errors_table(rows: list[Row]) -> str:
    caption = (
        f"Errors at k = n/2 for n = {QUALITY_N}, relative to the best rank-k approximation "
        "(spectral / Frobenius norm), and the largest entry of `T`. `exact`: the rank of the "
        "matrix is at most k, and the error, relative to the norm of the matrix, is rounding. "
        "`not run`: k exceeds the number of rows, for which `interp_decomp` corrupts memory."
    )
    header = ["family"]
    for title in METHOD_TITLES.values():
        header += [f"{title}: error", "max T"]
    lines = []
    for row in rows:
        cells = [row["family"].replace("_", " ")]
        for method in METHOD_TITLES:
            cells += _error_cells(row[method])
        lines.append(cells)
    return f"{caption}\n\n" + table(header, lines)


def _error_cells(errors: Row | None) -> list[str]:
    if errors is None:
        return ["not run", "-"]
    error = f"{_number(errors['spectral'])} / {_number(errors['frobenius'])}"
    if errors["spectral"] is None:
        error = f"exact ({errors['relative']:.0e})"
    return [error, f"{errors['max_T']:.3g}"]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def run(
    sizes: list[int], decomposition_sizes: list[int], device: torch.device, console: Console
) -> Row:
    """Return the report of all sizes and all families."""
    report: Row = {
        "command": f"python -m benchmarks linalg --device {device.type}",
        **stamp("linalg", device),
        "scipy": scipy.__version__,
        "threads": torch.get_num_threads(),
        "times": [],
        "quality": [],
    }
    with Progress(console=console) as progress:
        task = progress.add_task("timing", total=sum(n**3 for n in sizes))
        for n in sizes:
            progress.update(task, description=f"timing n = {n}")
            report["times"].append(time_size(n, device))
            progress.advance(task, n**3)
        if device.type == "cpu":
            report["decompositions"] = []
            thread_counts = sorted({1, torch.get_num_threads()})
            task = progress.add_task("decomposition", total=sum(n**3 for n in decomposition_sizes))
            for n in decomposition_sizes:
                report["decompositions"] += compare(n, thread_counts)
                progress.advance(task, n**3)
        task = progress.add_task("errors", total=len(FAMILIES))
        for name in FAMILIES:
            report["quality"].append(family_errors(name, QUALITY_N, device))
            progress.advance(task)
    return report


def main(arguments: list[str] | None = None) -> None:
    """Run all sizes and families on one device, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu", help="device to run on (default: cpu)")
    parser.add_argument("--sizes", type=int, nargs="+", help="numbers of columns to time")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    default = [128, 256, 512, 1024, 2048]
    sizes = options.sizes or (default if device.type == "cpu" else [1024, 2048, 4096, 8192, 16384])
    console = Console()
    report = run(sizes, options.sizes or SIZES, device, console)
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / f"linalg-{device.type}"
    set_aside(stem.with_suffix(".json"))
    stem.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    stem.with_suffix(".md").write_text(markdown(report))
    console.print(markdown(report), markup=False)


if __name__ == "__main__":
    main()
