"""docs/evidence.md from its template and the result files: every figure on it is read, none typed.

    python -m benchmarks page

In `benchmarks/evidence.md`, `{{name}}` on a line of its own stands for everything an experiment
wrote (where it ran, its tables, its plots, its file), and `{{name: question}}` inside a sentence
for one figure, by the functions below.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from benchmarks import experiment
from benchmarks.experiment import RESULTS, Report
from benchmarks.experiments import baselines, composition, removed
from benchmarks.tables import half_width, number, spread, table

TEMPLATE = Path(__file__).parent / "evidence.md"
PAGE = Path(__file__).parents[1] / "docs" / "evidence.md"
_WHOLE = re.compile(r"^\{\{(\w+)\}\}$", re.MULTILINE)
_FIGURE = re.compile(r"\{\{(\w+): ([^}]*)\}\}")


def render() -> str:
    """The page."""
    text = TEMPLATE.read_text()
    known = experiment.experiments()
    text = _WHOLE.sub(lambda found: section(found[1], known[found[1]]), text)
    return _FIGURE.sub(lambda found: figure(found[1], found[2]), text)


def section(name: str, module: ModuleType) -> str:
    """All that one experiment wrote."""
    path = RESULTS / f"{name}.json"
    report = Report.load(path)
    plots = sorted(RESULTS.glob(f"{name}.svg")) + sorted(RESULTS.glob(f"{name}-*.svg"))
    shown = "".join(f"\n![{plot.stem}](../benchmarks/results/{plot.name})\n" for plot in plots)
    source = f"Result file: `benchmarks/results/{name}.json`; made by\n"
    return f"{source}{experiment.heading(report)}\n{module.tables(report)}{shown}"


def figure(name: str, question: str) -> str:
    """One figure of one experiment."""
    report = Report.load(RESULTS / f"{name}.json")
    what, _, rest = question.partition(" ")
    answer = _ANSWERS[name, what](report, *(part.strip() for part in rest.split("|") if rest))
    if not answer:
        raise ValueError(f"{RESULTS / name}.json has no rows for {question!r}")
    return answer


def _agreement(report: Report, network: str, method: str, correction: str) -> str:
    rows = report.where(network=network, method=method, correction=correction)
    return spread([row["agreement"] for row in rows], 1)


def _ahead(report: Report, network: str, method: str) -> str:
    """By how much `preserve` is ahead, seed by seed."""
    ours = {r["seed"]: r["agreement"] for r in report.where(network=network, method="preserve")}
    rows = report.where(network=network, method=method)
    return spread([ours[row["seed"]] - row["agreement"] for row in rows], 1)


def _flops(report: Report, network: str, method: str) -> str:
    rows = report.where(network=network, method=method)
    return f"{sum(row['flops'] for row in rows) / len(rows):.2f}"


def _loss(report: Report, method: str) -> str:
    rows = report.where(method=method)
    if method != "full":
        rows = [row for row in rows if row["neurons"] == 12]
    return number(sum(row["loss"] for row in rows) / len(rows), 4)


def _fashion(report: Report, layers: str, width: str, method: str, key: str) -> str:
    rows = report.where(layers=int(layers), width=int(width), method=method)
    return spread([row[key] for row in rows], 1)


def _twins(report: Report, width: str) -> str:
    kinds = ("same start", "same order", "neither")
    found = []
    for kind in kinds:
        rows = report.where(method="twins", width=int(width), kind=kind)
        found.append(f"{sum(row['agreement'] for row in rows) / len(rows):.1f}")
    return " / ".join(found)


def _gap(report: Report, network: str, method: str, which: str) -> str:
    """The largest mean gap over removed classes, or how many classes stay within five points."""
    found = []
    for label in sorted({row["removed"] for row in report.where(network=network, method=method)}):
        rows = removed.at_the_end(report, network, method, label)
        pairs = [removed.losses(row) for row in rows]
        found.append(sum(own - others for own, others in pairs) / len(pairs))
    if which == "largest":
        return f"{max(found):.1f}"
    return f"{sum(gap <= 5 for gap in found)} of {len(found)}"


def _tuned(report: Report, network: str, start: str, teaching: str, when: str) -> str:
    rows = report.where(network=network, start=start, teaching=teaching)
    return f"{rows[0 if when == 'before' else -1]['agreement']:.1f}"


def _composed(report: Report, network: str, first: str, second: str) -> str:
    rows = report.where(network=network, first=first, second=second)
    return spread([row["agreement"] for row in rows], 1)


def _wins(report: Report, first: str) -> str:
    """How often a composition with PCA or learned ranks beats its better half, with an interval."""
    found = []
    for network in dict.fromkeys(row["network"] for row in report.all):
        for name, kind in dict.fromkeys((r["first"], r["second"]) for r in report.all):
            both = report.where(network=network, first=name, second=kind)
            if both and name.startswith(f"{first},") and kind in ("pca", "learned"):
                ahead = composition.ahead(report, network, name, kind)
                found.append(sum(ahead) / len(ahead) - half_width(ahead) > 0)
    return f"{sum(found)} of {len(found)}"


def _int8(report: Report, network: str, method: str) -> str:
    (row,) = report.where(network=network, method=method, kind="int8")
    return f"{row['agreement']:.1f} in {row['megabytes']:.2f} MB"


def _lemma(report: Report) -> str:
    ratios = [row["lemma"] / row["empirical"] for row in report.all]
    return f"{min(ratios):.0f} to {max(ratios):.0f}"


_ANSWERS: dict[tuple[str, str], Callable[..., str]] = {
    ("baselines", "agreement"): _agreement,
    ("baselines", "ahead"): _ahead,
    ("baselines", "flops"): _flops,
    ("circle", "loss"): _loss,
    ("fashion", "accuracy"): _fashion,
    ("fashion", "twins"): _twins,
    ("removed", "gap"): _gap,
    ("finetune", "agreement"): _tuned,
    ("composition", "agreement"): _composed,
    ("composition", "wins"): _wins,
    ("quantize", "agreement"): _int8,
    ("theory", "ratio"): _lemma,
}


def headline() -> str:
    """The table of the README: half of the FLOPs, what stays of the decisions."""
    report = Report.load(RESULTS / "baselines.json")
    networks = {"vgg16": "VGG-16", "mobilenetv1": "MobileNetV1", "resnet56": "ResNet-56"}
    wanted = {
        "`preserve`, the default": ("preserve", "T + refit"),
        "`iterative-id`, the paper's": ("iterative-id", "T"),
        "Torch-Pruning 1.6.1, batch norms recalibrated": ("Torch-Pruning", "batch norm"),
        "Torch-Pruning 1.6.1": ("Torch-Pruning", "none"),
        "largest weights (L2)": ("l2", "none"),
    }
    lines = []
    for label, (method, correction) in wanted.items():
        cells = []
        for network in networks:
            rows = [
                row
                for row in report.where(network=network, correction=correction)
                if row["method"] == method or row["method"].startswith(f"{method} ")
            ]
            best = report.where(
                network=network, correction=correction, method=baselines.best_of(rows)
            )
            cells.append(f"{sum(row['agreement'] for row in best) / len(best):.1f}")
        lines.append([label, *cells])
    return table(["decisions kept, %", *networks.values()], lines)


def main(arguments: list[str] | None = None) -> None:
    """Write the page."""
    PAGE.write_text(render())
    print(f"wrote {PAGE}")
