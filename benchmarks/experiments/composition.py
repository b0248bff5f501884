"""CIFAR-10 at half of the FLOPs: a low-rank second stage on networks that were made narrower first.

As in the paper, the first stage goes on until decisions begin to change (agreement 0.99 on held-out
calibration images); or it stops at three quarters of the FLOPs. The second goes from there to half
of them. Beside them, each stage alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import interpress
from benchmarks.experiment import Job, Report, Row, Setting
from benchmarks.lowrank import KINDS, factored
from benchmarks.subjects import each_network_and_seed, subject
from benchmarks.tables import half_width, spread, table
from interpress.demo import flops

ABOUT = "CIFAR-10: low-rank second stage (SVD, PCA, learned rank) after ID and after preserve"
FIRST = ("iterative-id", "preserve")
KEEP = 0.5
UNTIL: tuple[dict[str, Any], ...] = ({"agreement": 0.99}, {"flops": 0.75})


def jobs(setting: Setting) -> Iterator[Job]:
    """One per network and seed."""
    return each_network_and_seed(setting, _one)


def _one(setting: Setting, name: str, seed: int) -> list[Row]:
    one = subject(setting, name)
    calibration, judging = one.split(seed)
    rows: list[Row] = []

    def add(first: str, second: str, smaller: Any, share: float | None = None) -> None:
        about = {"network": name, "seed": seed, "first": first, "second": second, "share": share}
        rows.append(about | one.judged(smaller, judging))

    for kind in KINDS:
        add("", kind, factored(one.model, calibration, kind, KEEP))
    analyses = {"preserve": interpress.analyze(one.model, calibration, seed=seed, progress=False)}
    analyses["iterative-id"] = analyses["preserve"]
    if one.streams:
        analyses["iterative-id"] = interpress.analyze(
            one.model, calibration, seed=seed, exclude=one.streams, patches=False, progress=False
        )
    example = calibration[:1].to(next(one.model.parameters()).device)
    whole = flops(one.model, example)
    for method in FIRST:
        analysis = analyses[method]
        alone = analysis.compress(flops=KEEP, method=method, progress=False)
        add(method, "", alone.model)
        for until in UNTIL:
            first = analysis.compress(method=method, progress=False, **until).model
            share = flops(first, example) / whole
            for kind in KINDS:
                if share > KEEP:  # decisions may change only below half
                    smaller = factored(first, calibration, kind, KEEP / share)
                    add(f"{method}, {_named(until)}", kind, smaller, share)
    return rows


def _named(until: dict[str, float]) -> str:
    ((kind, value),) = until.items()
    return f"{kind} {value:g}"


def tables(report: Report) -> str:
    """Agreement alone and composed, one table for every network; then who is ahead."""
    parts = []
    for network in dict.fromkeys(row["network"] for row in report.all):
        rows = report.where(network=network)
        lines = []
        for first in dict.fromkeys(row["first"] for row in rows):
            own = [row for row in rows if row["first"] == first]
            share = [row["share"] for row in own if row["share"]]
            cells = [spread([r["agreement"] for r in own if r["second"] == second], 2)
                     for second in ("", *KINDS)]  # fmt: skip
            lines.append([first or "nothing", f"{sum(share) / len(share):.2f}" if share else "",
                          *cells])  # fmt: skip
        header = [f"{network}, first stage", "FLOPs after it", "no second stage", *KINDS]
        parts.append(table(header, lines))
    return "\n".join([*parts, gains(report)])


def gains(report: Report) -> str:
    """Composed against the better of its two halves, seed by seed."""
    lines = []
    for network in dict.fromkeys(row["network"] for row in report.all):
        rows = report.where(network=network)
        for first, kind in dict.fromkeys(
            (r["first"], r["second"]) for r in rows if r["first"] and r["second"]
        ):
            found = ahead(report, network, first, kind)
            mean = sum(found) / len(found)
            won = "yes" if len(found) > 1 and mean - half_width(found) > 0 else "no"
            lines.append([network, f"{first} + {kind}", spread(found, 2), won])
    header = ["network", "composition", "points ahead of the better half", "interval above 0"]
    return table(header, lines)


def ahead(report: Report, network: str, first: str, kind: str) -> list[float]:
    """By how many points a composition beats the better of its halves, for every seed."""
    alone = first.split(",")[0]
    halves = [
        {r["seed"]: r["agreement"] for r in report.where(network=network, **wanted)}
        for wanted in ({"first": alone, "second": ""}, {"first": "", "second": kind})
    ]
    both = report.where(network=network, first=first, second=kind)
    return [r["agreement"] - max(half[r["seed"]] for half in halves) for r in both]


def draw(report: Report, folder: Path) -> None:
    """Bars by second stage."""
    from benchmarks.plots import COLOURS, figure, legend_below

    networks = list(dict.fromkeys(row["network"] for row in report.all))
    with figure(folder / "composition.svg", len(networks)) as axes:
        for axis, network in zip(axes, networks, strict=True):
            firsts = list(dict.fromkeys(row["first"] for row in report.where(network=network)))
            for place, first in enumerate(firsts):
                values = []
                for second in ("", *KINDS):
                    own = report.where(network=network, first=first, second=second)
                    values.append(sum(r["agreement"] for r in own) / len(own) if own else 0)
                shift = [x + place * 0.8 / len(firsts) for x in range(len(values))]
                axis.bar(shift, values, 0.8 / len(firsts), color=COLOURS[place],
                         label=first or "no first stage")  # fmt: skip
            axis.set_xticks([0.4, 1.4, 2.4, 3.4], ["none", *KINDS])
            axis.set_xlabel("second stage")
            axis.set_title(network)
            axis.set_ylabel("agreement, %")
        legend_below(axes[0])
