"""CIFAR-10 at half of the FLOPs in two stages: narrower layers first, then low rank.

The first stage stops when decisions begin to change (agreement 0.99 on held-out calibration images,
as in the paper) or at three quarters of the FLOPs. The second stage continues to half of the FLOPs.
Each stage alone is measured as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from benchmarks import lowrank, subspaces
from benchmarks.experiment import Job, Report, Row, Settings
from benchmarks.subjects import jobs_per_network_and_seed, load_subject
from benchmarks.tables import interval_half_width, mean_with_interval, network_title, table
from interpress.demo import flops

ABOUT = "CIFAR-10: low rank (SVD, PCA, learned, ALDS, Messi) after iterative-id and preserve"
KINDS = (*lowrank.KINDS, *subspaces.KINDS)
FIRST_STAGES = ("iterative-id", "preserve")
KEEP = 0.5
FIRST_BUDGETS: tuple[dict[str, Any], ...] = ({"agreement": 0.99}, {"flops": 0.75})


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield one job per network and seed."""
    return jobs_per_network_and_seed(settings, _run)


def _run(settings: Settings, name: str, seed: int) -> list[Row]:
    subject = load_subject(settings, name)
    calibration, testing = subject.split(seed)
    rows: list[Row] = []

    def add(first: str, second: str, smaller: nn.Module, share: float | None = None) -> None:
        row = {"network": name, "seed": seed, "first": first, "second": second, "share": share}
        rows.append(row | subject.score(smaller, testing))

    for kind in KINDS:
        add("", kind, factorize(subject.model, calibration, kind, KEEP))
    analyses = {"preserve": subject.analyze(calibration, seed=seed)}
    analyses["iterative-id"] = analyses["preserve"]
    if subject.residual_streams:
        analyses["iterative-id"] = subject.analyze(
            calibration, seed=seed, interiors=True, patches=False
        )
    example = calibration[:1].to(subject.device)
    original_flops = flops(subject.model, example)
    for method in FIRST_STAGES:
        analysis = analyses[method]
        add(method, "", analysis.compress(flops=KEEP, method=method, progress=False).model)
        for budget in FIRST_BUDGETS:
            first = analysis.compress(method=method, progress=False, **budget).model
            share = flops(first, example) / original_flops
            if share <= KEEP:  # agreement stays above 0.99 until the final budget
                continue
            for kind in KINDS:
                smaller = factorize(first, calibration, kind, KEEP / share)
                add(f"{method}, {_budget_name(budget)}", kind, smaller, share)
    return rows


def factorize(model: nn.Module, images: Tensor, kind: str, keep: float) -> nn.Module:
    """Return a copy with layers factored in this way and at most `keep` of the FLOPs."""
    module = lowrank if kind in lowrank.KINDS else subspaces
    return module.factorize(model, images, kind, keep)


def _budget_name(budget: dict[str, float]) -> str:
    ((kind, value),) = budget.items()
    return f"{kind} {value:g}"


def stage_title(first: str) -> str:
    """Return a first stage as tables show it; the result file has "" and "method, budget value"."""
    method, _, budget = first.partition(", ")
    if not budget:
        return method or "none"
    kind, value = budget.split()
    return f"{method} to {'FLOPs' if kind == 'flops' else kind} {value}"


def tables(report: Report) -> str:
    """Return agreement of single and combined stages, one table per network, and the gains."""
    parts = []
    kinds = _measured(report)
    for network in report.distinct("network"):
        lines = []
        for first in report.distinct("first", network=network):
            rows = report.where(network=network, first=first)
            shares = [row["share"] for row in rows if row["share"]]
            cells = [
                mean_with_interval([row["agreement"] for row in rows if row["second"] == kind], 2)
                for kind in ("", *kinds)
            ]
            share = f"{sum(shares) / len(shares):.2f}" if shares else ""
            lines.append([stage_title(first), share, *cells])
        header = ["first stage", "FLOPs after it, fraction", "no second stage", *kinds]
        caption = f"**{network_title(network)}**: agreement in percent, by first and second stage"
        parts.append(f"{caption}\n\n" + table(header, lines))
    return "\n".join([*parts, gains(report)])


def _measured(report: Report) -> list[str]:
    """Return the second stages that a report has rows of; older ones have fewer."""
    return [kind for kind in KINDS if report.where(second=kind)]


def gains(report: Report) -> str:
    """Return by how much every combination exceeds the better of its two stages."""
    lines = []
    for network in report.distinct("network"):
        for first, kind in combinations(report, network):
            gain = gain_per_seed(report, network, first, kind)
            mean = sum(gain) / len(gain)
            above_zero = len(gain) > 1 and mean - interval_half_width(gain) > 0
            lines.append([
                network_title(network), f"{stage_title(first)}, then {kind}",
                mean_with_interval(gain, 2), "yes" if above_zero else "no",
            ])  # fmt: skip
    header = ["network", "combination", "gain, points", "interval above 0"]
    caption = "**Gains**: agreement of a combination minus that of the better stage alone"
    return f"{caption}\n\n" + table(header, lines, text_columns=2)


def combinations(report: Report, network: str) -> list[tuple[str, str]]:
    """Return the pairs of a first and a second stage that were run."""
    return list(
        dict.fromkeys(
            (row["first"], row["second"])
            for row in report.where(network=network)
            if row["first"] and row["second"]
        )
    )


def gain_per_seed(report: Report, network: str, first: str, kind: str) -> list[float]:
    """Return by how many points a combination exceeds the better of its stages, per seed."""
    method = first.split(",")[0]
    single_stages = [
        {row["seed"]: row["agreement"] for row in report.where(network=network, **stages)}
        for stages in ({"first": method, "second": ""}, {"first": "", "second": kind})
    ]
    return [
        row["agreement"] - max(agreements[row["seed"]] for agreements in single_stages)
        for row in report.where(network=network, first=first, second=kind)
    ]


def draw(report: Report, folder: Path) -> None:
    """Plot agreement by second stage, one bar per first stage."""
    from benchmarks.plots import COLOURS, figure, legend_below

    networks, kinds = report.distinct("network"), _measured(report)
    with figure(folder / "composition.svg", len(networks)) as axes:
        for axis, network in zip(axes, networks, strict=True):
            first_stages = report.distinct("first", network=network)
            bar = 0.8 / len(first_stages)
            for place, first in enumerate(first_stages):
                means = []
                for second in ("", *kinds):
                    rows = report.where(network=network, first=first, second=second)
                    means.append(sum(r["agreement"] for r in rows) / len(rows) if rows else 0)
                shifted = [x + place * bar for x in range(len(means))]
                label = stage_title(first) if first else "no first stage"
                axis.bar(shifted, means, bar, color=COLOURS[place], label=label)
            axis.set_xticks([x + 0.4 for x in range(len(kinds) + 1)], ["none", *kinds])
            axis.set_xlabel("second stage")
            axis.set_title(network_title(network))
            axis.set_ylabel("agreement, %")
        legend_below(axes[0])
