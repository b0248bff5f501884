"""Our factorizations against SciPy's, in one run: seconds, error over the SVD bound, size of T.

    python -m benchmarks.linalg                       # CPU, n = 128 ... 4096
    python -m benchmarks.linalg --device cuda         # GPU, n = 1024 ... 16384
    python -m benchmarks.linalg --sizes 128 256       # quick

Writes ``benchmarks/results/linalg-<device>.json`` and ``.md``. Two tasks are timed, each to the
ordering of all columns plus the interpolation matrix at n/2:

- *factor*: from the n x n factor of a tap (what a compression does once per tap): our Gram
  matrix, and for SciPy the triangular factor of the same rows;
- *rows*: from 4n rows of float32 activations in memory. SciPy gets them as float64.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import scipy.linalg.interpolative
import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

import interpress
from benchmarks.experiment import RESULTS, machine
from benchmarks.matrices import FAMILIES
from interpress.linalg import (
    FactorStream,
    Interpolation,
    RFactor,
    column_ordering,
    order_by_pivoting,
)

QUALITY_N = 256
# float64 operations after which a SciPy routine is not started: minutes, not hours
SCIPY_LIMIT = {"qr": 4 * 8192**3, "interpolative": 4 * 4096**3}

Row = dict[str, Any]


def seconds(task: Callable[[], object], device: torch.device, repeats: int = 3) -> float:
    """Best of a few runs; the first one warms up unless it was long."""
    best = math.inf
    for _ in range(repeats + 1):
        started = time.perf_counter()
        task()
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
        if best > 10:
            break
    return best


def activations(n: int, device: torch.device) -> Tensor:
    """4n rows of a ReLU layer on correlated inputs, float32."""
    torch.manual_seed(0)
    inputs = torch.randn(4 * n, n // 4, device=device)
    return (inputs @ torch.randn(n // 4, n, device=device)).relu_()


def scipy_id(matrix: np.ndarray[Any, Any], k: int) -> None:
    R, _ = scipy.linalg.qr(matrix, mode="r", pivoting=True, check_finite=False)
    scipy.linalg.solve_triangular(R[:k, :k], R[:k, k:], check_finite=False)


def time_one(n: int, device: torch.device) -> Row:
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
        row["scipy_factor"] = seconds(lambda: scipy_id(R, k), cpu)
    if 16 * n**3 <= SCIPY_LIMIT["qr"]:
        row["scipy_rows"] = seconds(lambda: scipy_id(host.astype(np.float64), k), cpu)
    if 16 * n**3 <= SCIPY_LIMIT["interpolative"]:
        row["scipy_interpolative_rows"] = seconds(
            lambda: scipy.linalg.interpolative.interp_decomp(host.astype(np.float64), k), cpu, 1
        )
    return row


def scipy_qr_selection(A: Tensor, k: int) -> tuple[Tensor, Tensor]:
    R, pivots = scipy.linalg.qr(A.cpu().numpy(), mode="r", pivoting=True)
    T = np.zeros((k, A.shape[1]))
    solved = np.linalg.lstsq(R[:k, :k], R[:k, k:], rcond=None)[0]
    T[:, pivots] = np.hstack([np.eye(k), solved])
    return torch.from_numpy(pivots[:k].astype(np.int64)).to(A.device), torch.from_numpy(T).to(A)


def scipy_interpolative_selection(A: Tensor, k: int) -> tuple[Tensor, Tensor] | None:
    if k > min(A.shape):
        return None  # it takes such a k and writes outside of its arrays
    index, projection = scipy.linalg.interpolative.interp_decomp(A.cpu().numpy(), k, rand=False)
    T = np.zeros((k, A.shape[1]))
    T[:, index] = np.hstack([np.eye(k), projection])
    return torch.from_numpy(index[:k].astype(np.int64)).to(A.device), torch.from_numpy(T).to(A)


def ours_selection(found: Interpolation) -> tuple[Tensor, Tensor]:
    return found.kept, found.T


def judge(A: Tensor, k: int, kept: Tensor, T: Tensor) -> Row:
    """Measured on the matrix itself, not taken from anybody's report."""
    error = A - A[:, kept] @ T
    beyond = torch.linalg.svdvals(A)[k:]
    size = float(torch.linalg.matrix_norm(A))
    if float(torch.linalg.vector_norm(beyond)) <= 1e-12 * size:
        spectral = frobenius = None  # exact to rounding: there is no bound to compare with
    else:
        spectral = float(torch.linalg.matrix_norm(error, 2) / beyond[0])
        frobenius = float(torch.linalg.matrix_norm(error) / torch.linalg.vector_norm(beyond))
    return {
        "spectral": spectral,
        "frobenius": frobenius,
        "relative": float(torch.linalg.matrix_norm(error)) / size,
        "max_T": float(T.abs().max()),
    }


def quality_one(name: str, n: int, device: torch.device) -> Row:
    A = FAMILIES[name](n, 0).to(device)
    k = n // 2
    ordering = column_ordering(A)
    selections = {
        "ours": ours_selection(ordering.at_rank(k)),
        "ours_bounded": ours_selection(ordering.at_rank(k, max_entry=2.0)),
        "scipy_qr": scipy_qr_selection(A, k),
        "scipy_interpolative": scipy_interpolative_selection(A, k),
    }
    judged = {
        method: None if selection is None else judge(A, k, *selection)
        for method, selection in selections.items()
    }
    return {"family": name, "n": n, "k": k, **judged}


def number(value: float | None, form: str = ".3f") -> str:
    return "-" if value is None else format(value, form)


def ratio(theirs: float | None, ours: float) -> str:
    return "-" if theirs is None else f"{theirs / ours:.1f}x"


def markdown(report: Row) -> str:
    lines = [
        f"# Linear algebra on {report['machine']}",
        "",
        f"`{report['command']}`, {report['date']}, torch {report['torch']}, "
        f"SciPy {report['scipy']}, {report['threads']} CPU threads.",
        "",
        "Seconds to the ordering of all columns plus T at n/2 (best of several); SciPy runs on the "
        "CPU of the same machine.",
        "",
        "| n | factor: ours | SciPy QR | faster | rows: ours | SciPy QR | faster | interp_decomp |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in report["times"]:
        lines.append(
            f"| {row['n']} | {row['ours_factor']:.4f} | {number(row['scipy_factor'])} "
            f"| {ratio(row['scipy_factor'], row['ours_factor'])} | {row['ours_rows']:.4f} "
            f"| {number(row['scipy_rows'])} | {ratio(row['scipy_rows'], row['ours_rows'])} "
            f"| {number(row['scipy_interpolative_rows'])} |"
        )
    lines += [
        "",
        f"Error over the SVD bound at k = n/2, n = {QUALITY_N} (spectral / Frobenius), max |T|. "
        "`exact`: the matrix has rank k or less, the error is rounding. `not run`: k exceeds the "
        "number of rows, for which `interp_decomp` corrupts memory.",
        "",
        "| family | ours | max T | T <= 2 | max T | SciPy QR | max T | interp_decomp | max T |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in report["quality"]:
        cells = [row["family"].replace("_", " ")]
        for method in ("ours", "ours_bounded", "scipy_qr", "scipy_interpolative"):
            judged = row[method]
            if judged is None:
                cells += ["not run", "-"]
                continue
            exact = judged["spectral"] is None
            error = f"{number(judged['spectral'])} / {number(judged['frobenius'])}"
            cells += [
                f"exact ({judged['relative']:.0e})" if exact else error,
                f"{judged['max_T']:.3g}",
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def run(sizes: Iterable[int], device: torch.device, command: str, console: Console) -> Row:
    sizes = list(sizes)
    report: Row = {
        "command": command,
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(device),
        "torch": torch.__version__,
        "scipy": scipy.__version__,
        "interpress": interpress.__version__,
        "threads": torch.get_num_threads(),
        "times": [],
        "quality": [],
    }
    with Progress(console=console) as progress:
        task = progress.add_task("timing", total=sum(n**3 for n in sizes))
        for n in sizes:
            progress.update(task, description=f"timing n = {n}")
            report["times"].append(time_one(n, device))
            progress.advance(task, n**3)
        task = progress.add_task("quality", total=len(FAMILIES))
        for name in FAMILIES:
            report["quality"].append(quality_one(name, QUALITY_N, device))
            progress.advance(task)
    return report


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    default = [128, 256, 512, 1024, 2048, 4096]
    sizes = options.sizes or (default if device.type == "cpu" else [1024, 2048, 4096, 8192, 16384])
    console = Console()
    command = f"python -m benchmarks.linalg --device {device.type}"
    report = run(sizes, device, command, console)
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / f"linalg-{device.type}"
    stem.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    stem.with_suffix(".md").write_text(markdown(report))
    console.print(markdown(report), markup=False)


if __name__ == "__main__":
    main()
