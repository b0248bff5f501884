"""Single figures from the result files, for the sentences and tables of the pages.

A template asks for a figure with `{{experiment: question argument | argument}}`. Every question is
one function below, and `version` asks for the version of interpress.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

from benchmarks.experiment import RESULTS, Report, Row
from benchmarks.experiments import baselines, composition, fashion, removed
from benchmarks.provenance import versions_of
from benchmarks.tables import interval_half_width, mean_with_interval, significant, table


def figure(experiment: str, question: str) -> str:
    """Return one figure of one experiment."""
    kind, _, arguments = question.partition(" ")
    parts = [part.strip() for part in arguments.split("|")] if arguments else []
    if kind == "version":
        return " and ".join(versions_of(RESULTS / f"{experiment}.json"))
    older = sorted(RESULTS.glob(f"older/*/{experiment}.json"), reverse=True)
    load = _load_rows if experiment in _OF_ROWS else _load
    for path in (RESULTS / f"{experiment}.json", *older):
        if path.is_file() and (answer := _QUESTIONS[experiment, kind](load(path), *parts)):
            return answer
    raise ValueError(f"{RESULTS / experiment}.json has no rows for {question!r}")


@cache
def _load(path: Path) -> Report:
    return Report.load(path)


@cache
def _load_rows(path: Path) -> list[Row]:
    """Return the rows of a result file that is not one of an experiment."""
    stored = json.loads(path.read_text())
    return stored if isinstance(stored, list) else stored["rows"]


def _distilled(rows: list[Row], network: str, asked: str, key: str) -> str:
    """Return the mean over the seeds that trained on the calibration images; "" without rows."""
    wanted = {
        "network": network, "asked": float(asked), "method": "preserve", "calibration": "test",
    }  # fmt: skip
    found = [row[key] for row in rows if all(row[k] == v for k, v in wanted.items())]
    return f"{sum(found) / len(found):.1f}" if found else ""


def _perplexity(rows: list[Row], method: str, flops: str) -> str:
    found = [
        row["ratio"] for row in rows if (row["method"], row["flops"]) == (method, float(flops))
    ]
    return f"{found[0]:.2f}" if found else ""


def _baseline_agreement(report: Report, network: str, method: str, correction: str) -> str:
    rows = report.where(network=network, method=method, correction=correction)
    return mean_with_interval([row["agreement"] for row in rows], 1)


def _baseline_lead(report: Report, network: str, method: str) -> str:
    """Return by how much `preserve` leads a method, seed by seed."""
    rows = report.where(network=network, method=method)
    return mean_with_interval(baselines.leads(report, network, rows), 1)


def _baseline_flops(report: Report, network: str, method: str) -> str:
    rows = report.where(network=network, method=method)
    return f"{sum(row['flops'] for row in rows) / len(rows):.2f}"


def _circle_loss(report: Report, method: str) -> str:
    rows = report.where(method=method)
    if method != "full":
        rows = [row for row in rows if row["neurons"] == 12]
    return significant(sum(row["loss"] for row in rows) / len(rows), 4)


def _fashion_accuracy(report: Report, layers: str, width: str, method: str, key: str) -> str:
    rows = report.where(layers=int(layers), width=int(width), method=method)
    return mean_with_interval([row[key] for row in rows], 1)


def _fashion_twins(report: Report, width: str) -> str:
    means = []
    for kind in fashion.PAIR_TITLES:
        rows = report.where(method="twins", width=int(width), kind=kind)
        means.append(f"{sum(row['agreement'] for row in rows) / len(rows):.1f}")
    return " / ".join(means)


def _removed_gap(report: Report, network: str, method: str, statistic: str) -> str:
    """Return the largest mean gap of all removed classes, or how many are within five points."""
    means = []
    for label in sorted(report.distinct("removed", network=network, method=method)):
        gaps = removed.gaps(report, network, method, label)
        means.append(sum(gaps) / len(gaps))
    if statistic == "largest":
        return f"{max(means):.1f}"
    return f"{sum(gap <= 5 for gap in means)} of {len(means)}"


def _finetune_agreement(report: Report, network: str, start: str, teaching: str, when: str) -> str:
    rows = report.where(network=network, start=start, teaching=teaching)
    return f"{rows[0 if when == 'before' else -1]['agreement']:.1f}"


def _composition_agreement(report: Report, network: str, first: str, second: str) -> str:
    rows = report.where(network=network, first=first, second=second)
    return mean_with_interval([row["agreement"] for row in rows], 1)


def _composition_wins(report: Report, method: str) -> str:
    """Return how many combinations with PCA or learned ranks gain, with the interval above 0."""
    wins = []
    for network in report.distinct("network"):
        for first, kind in composition.combinations(report, network):
            if first.startswith(f"{method},") and kind in ("pca", "learned"):
                gain = composition.gain_per_seed(report, network, first, kind)
                wins.append(sum(gain) / len(gain) - interval_half_width(gain) > 0)
    return f"{sum(wins)} of {len(wins)}"


def _int8_agreement(report: Report, network: str, method: str) -> str:
    (row,) = report.where(network=network, method=method, kind="int8")
    return f"{row['agreement']:.1f} ({row['megabytes']:.2f} MB)"


def _lemma_ratio(report: Report) -> str:
    ratios = [row["lemma"] / row["empirical"] for row in report.all_rows]
    return f"{min(ratios):.0f} to {max(ratios):.0f}"


def _contender_agreement(report: Report, network: str, asked: str, method: str) -> str:
    rows = report.where(network=network, asked=float(asked), method=method)
    return mean_with_interval([row["agreement"] for row in rows if "failed" not in row])


_QUESTIONS: dict[tuple[str, str], Callable[..., str]] = {
    ("baselines", "agreement"): _baseline_agreement,
    ("baselines", "lead"): _baseline_lead,
    ("baselines", "flops"): _baseline_flops,
    ("circle", "loss"): _circle_loss,
    ("fashion", "accuracy"): _fashion_accuracy,
    ("fashion", "twins"): _fashion_twins,
    ("removed", "gap"): _removed_gap,
    ("finetune", "agreement"): _finetune_agreement,
    ("composition", "agreement"): _composition_agreement,
    ("composition", "wins"): _composition_wins,
    ("quantize", "agreement"): _int8_agreement,
    ("theory", "ratio"): _lemma_ratio,
    ("preserve-distill-cuda", "percent"): _distilled,
    ("language", "ratio"): _perplexity,
    ("efficientnet", "agreement"): _contender_agreement,
    ("pitch", "agreement"): _contender_agreement,
}
_OF_ROWS = ("preserve-distill-cuda", "language")
"""Result files that hold rows only."""


def headline() -> str:
    """Return the table of the README: agreement at half of the FLOPs."""
    report = _load(RESULTS / "baselines.json")
    networks = {"vgg16": "VGG-16", "mobilenetv1": "MobileNetV1", "resnet56": "ResNet-56"}
    methods = {
        "`preserve` (default)": ("preserve", "T + refit"),
        "`iterative-id` (the paper's method)": ("iterative-id", "T"),
        "Torch-Pruning 1.6.1, batch norms recalibrated": ("Torch-Pruning", "batch norm"),
        "Torch-Pruning 1.6.1": ("Torch-Pruning", "none"),
        "magnitude pruning (L2)": ("l2", "none"),
    }
    lines = []
    for label, (method, correction) in methods.items():
        cells = []
        for network in networks:
            rows = [
                row
                for row in report.where(network=network, correction=correction)
                if row["method"] == method or row["method"].startswith(f"{method} ")
            ]
            best = baselines.best_method(rows)
            agreements = [row["agreement"] for row in rows if row["method"] == best]
            cells.append(f"{sum(agreements) / len(agreements):.1f}")
        lines.append([label, *cells])
    return table(["agreement with the original, %", *networks.values()], lines)
