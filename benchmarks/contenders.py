"""Smaller networks of one original at one budget: interpress, the paper, magnitude, Torch-Pruning.

All see the same calibration examples, and may use the same fraction of the FLOPs. A method that
cannot make such a network is reported with its reason.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from torch import Tensor, nn

import interpress
from benchmarks import peers
from benchmarks.experiment import Report, Row
from benchmarks.tables import mean_with_interval, network_title, table
from interpress import Method
from interpress.demo import flops

METHODS: dict[str, Method] = {
    "preserve": Method(),
    "preserve, same fraction everywhere": Method(allocation="constant"),
    "iterative-id": Method.named("iterative-id"),
    "constant-id": Method.named("constant-id"),
}
"""Methods of interpress; the last two are the paper's."""
MAGNITUDE = "L2 magnitude"
IMPORTANCE = "group L2"
RECALIBRATED = ", batch norms recalibrated"
_AT_ONCE = 50  # examples per batch when batch norms are recalibrated


@dataclass(frozen=True, eq=False)
class Contender:
    """One smaller network, or the reason why there is none."""

    method: str
    model: nn.Module | None
    seconds: float = math.nan
    """Run time of the method, without the analysis that methods of interpress share."""
    reason: str = ""

    def row(self, original: nn.Module, example: Tensor) -> Row:
        """Return what every experiment records of it."""
        if self.model is None:
            return {"method": self.method, "failed": self.reason}
        share = flops(self.model, example) / flops(original, example)
        return {"method": self.method, "flops": share, "seconds": round(self.seconds, 1)}


def contenders(
    analysis: interpress.Analysis,
    model: nn.Module,
    calibration: Tensor,
    keep: float,
    left_whole: Mapping[str, Sequence[str]] = MappingProxyType({"": ()}),
) -> Iterator[Contender]:
    """Yield a network of every method with at most `keep` of the FLOPs of `model`.

    Torch-Pruning runs once per entry of `left_whole`, which has the layers that it leaves unchanged
    by the end of the row's name.
    """
    for name, method in METHODS.items():
        yield compressed(analysis, name, keep, method)
    plain = Method(selection="l2", allocation="constant", refit=False, correct=False)
    uncorrected = [(MAGNITUDE, partial(_compressed, analysis, keep, plain))]
    if peers.available():
        example = calibration[:2].to(next(model.parameters()).device)
        for end, names in left_whole.items():
            build = partial(peers.torch_pruning, model, example, IMPORTANCE, keep, names)
            uncorrected.append((f"Torch-Pruning, {IMPORTANCE}{end}", build))
    for name, build in uncorrected:
        for first in _tried(name, build):
            yield first
            if first.model is not None:
                recalibrate = partial(
                    peers.recalibrate_batch_norms, first.model, calibration, _AT_ONCE
                )
                yield from _tried(name + RECALIBRATED, recalibrate)


def compressed(analysis: interpress.Analysis, name: str, keep: float, method: Method) -> Contender:
    """Return the network of one method of interpress."""
    return next(_tried(name, partial(_compressed, analysis, keep, method)))


def _compressed(analysis: interpress.Analysis, keep: float, method: Method) -> nn.Module:
    with warnings.catch_warnings():  # the tables show how good the network is
        warnings.simplefilter("ignore", UserWarning)
        return analysis.compress(flops=keep, method=method, progress=False).model


def _tried(name: str, build: Callable[[], nn.Module]) -> Iterator[Contender]:
    """Yield the network that a function builds, or the reason why it cannot."""
    started = time.perf_counter()
    try:
        model = build()
    except (interpress.InterpressError, RuntimeError, ValueError, TypeError) as problem:
        lines = str(problem).splitlines() or [type(problem).__name__]
        yield Contender(name, None, reason=lines[0])
        return
    yield Contender(name, model, time.perf_counter() - started)


def tables_by_budget(report: Report, caption: Callable[[Row], str]) -> str:
    """Return one table per network and budget, from rows with `agreement` and `accuracy`.

    `caption` says, from a row, what was compared.
    """
    parts = []
    cases = dict.fromkeys((row["network"], row["asked"]) for row in report.all_rows)
    for network, keep in cases:
        case = {"network": network, "asked": keep}
        lines = []
        for method in report.distinct("method", **case):
            rows = report.where(**case, method=method)
            lines.append([method, *_cells([row for row in rows if "failed" not in row])])
        header = ["method", "FLOPs", "as the original, %", "right, %", "seconds"]
        title = f"**{network_title(network)}, at most {keep:g} of the FLOPs**"
        text = f"{title}: {caption(report.where(**case)[0])}\n"
        failed = {row["method"]: row["failed"] for row in report.where(**case) if "failed" in row}
        reasons = [f"- {method} made no network: {why}\n" for method, why in failed.items()]
        parts.append("\n".join([text, table(header, lines), *reasons]))
    return "\n".join(parts)


def _cells(rows: list[Row]) -> list[str]:
    if not rows:
        return ["none", "", "", ""]
    flops, seconds = (sum(row[key] for row in rows) / len(rows) for key in ("flops", "seconds"))
    shown = (mean_with_interval([row[key] for row in rows]) for key in ("agreement", "accuracy"))
    return [f"{flops:.3f}", *shown, f"{seconds:.0f}"]
