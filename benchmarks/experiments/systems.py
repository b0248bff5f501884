"""CIFAR-10 at half of the FLOPs: the systems of the paper's appendix that `baselines` has not.

- `cp` (channel pruning by LASSO), `sipp`, `snip` and `coreset` rank channels. As in `baselines`,
  they keep the same fraction of every layer, with every correction. The correction of CP itself is
  the refit; coresets have one of their own, which reweights the consumers.
- Thres sets single weights to zero, as many as `preserve` removes. Its FLOPs stay as they are.

On ResNet-56 only the interiors of residual blocks shrink, except in the row `preserve`. The low-
rank systems (ALDS, Messi) are in `composition`; AMC and Polar train, and are quoted from the paper
(`benchmarks.published`).
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from benchmarks import coresets, snip
from benchmarks.experiment import Job, Report, Row, Settings
from benchmarks.experiments.baselines import (
    CORRECTIONS,
    INTERIORS,
    KEEP,
    add_baseline,
    method_title,
)
from benchmarks.subjects import jobs_per_network_and_seed, load_subject
from benchmarks.tables import mean_with_interval, network_title, table
from benchmarks.thresholding import nonzeros, threshold

ABOUT = "CIFAR-10 at half of the FLOPs: CP, SiPP, SNIP, coresets; Thres at equal non-zeros"
SELECTIONS = ("cp", "sipp", snip.NAME, coresets.NAME)
OWN = "own"
"""The correction of coresets in the result file."""
THRES = "Thres"
_COLUMNS = {**CORRECTIONS, OWN: "its own"}


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield one job per network and seed."""
    return jobs_per_network_and_seed(settings, _run)


def _run(settings: Settings, name: str, seed: int) -> list[Row]:
    subject = load_subject(settings, name)
    calibration, testing = subject.split(seed)
    whole = nonzeros(subject.model)
    rows: list[Row] = []

    def add(method: str, correction: str, smaller: nn.Module) -> None:
        row = {"network": name, "seed": seed, "method": method, "correction": correction}
        row["nonzeros"] = nonzeros(smaller) / whole
        rows.append(row | subject.score(smaller, testing))

    interiors = everything = subject.analyze(calibration, seed=seed)
    preserved = everything.compress(flops=KEEP, progress=False).model
    add("preserve", "T + refit", preserved)
    add(THRES, "none", threshold(subject.model, nonzeros(preserved)))
    if subject.residual_streams:
        interiors = subject.analyze(calibration, seed=seed, interiors=True)
        smaller = interiors.compress(flops=KEEP, progress=False).model
        add("preserve" + INTERIORS, "T + refit", smaller)
    snip.prepare(interiors, calibration)
    coresets.register()
    for selection in settings.track(SELECTIONS, f"{name}, seed {seed}"):
        add_baseline(selection, interiors, calibration, add)
    add(coresets.NAME, OWN, coresets.reweighted(interiors, KEEP))
    return rows


def tables(report: Report) -> str:
    """Return agreement by system and correction, one table per network, and that of Thres."""
    parts = []
    for network in report.distinct("network"):
        lines = []
        for method in report.distinct("method", network=network):
            if method != THRES:
                cells = [_agreement(report, network, method, key) for key in _COLUMNS]
                lines.append([method_title(method), *cells])
        caption = f"**{network_title(network)}**: agreement with the original in percent"
        header = ["method", *_COLUMNS.values()]
        parts.append(f"{caption}\n\n" + table(header, lines))
    return "\n".join([*parts, thresholds(report)])


def _agreement(report: Report, network: str, method: str, correction: str) -> str:
    rows = report.where(network=network, method=method, correction=correction)
    return mean_with_interval([row["agreement"] for row in rows], 2)


def thresholds(report: Report) -> str:
    """Return the agreement of Thres beside that of `preserve`, at the same number of non-zeros."""
    lines = []
    for network in report.distinct("network"):
        for method in (THRES, "preserve"):
            rows = report.where(network=network, method=method)
            shares = (
                f"{sum(row[key] for row in rows) / max(len(rows), 1):.3f}"
                for key in ("nonzeros", "flops")
            )
            agreement = mean_with_interval([row["agreement"] for row in rows], 2)
            lines.append([network_title(network), method, *shares, agreement])
    header = ["network", "method", "non-zero weights, fraction", "FLOPs, fraction", "agreement, %"]
    caption = "**Single weights**: zeros of Thres save no FLOPs, because shapes stay as they are"
    return f"{caption}\n\n" + table(header, lines, text_columns=2)
