"""CIFAR-10 at half of the FLOPs before any training: preserve, the paper, baselines, Torch-Pruning.

The baselines use the same surgery, budget (a constant fraction of every layer) and test images as
the other methods. They run without correction, with recalibrated batch norms, with the
interpolation `T`, and with `T` and the refit. Two of them also run with the widths that `preserve`
would allocate for them, which isolates the effect of the channel order. On ResNet-56 the baselines
and the paper's methods shrink only the interiors of residual blocks; `preserve` and Torch-Pruning
run both with and without that restriction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from torch import Tensor, nn

from benchmarks import peers
from benchmarks.experiment import Job, Report, Row, Settings
from benchmarks.subjects import Subject, jobs_per_network_and_seed, load_subject
from benchmarks.tables import interval_half_width, mean_with_interval, network_title, table
from interpress import Analysis, Method

ABOUT = "CIFAR-10 at half of the FLOPs: baselines with and without correction, Torch-Pruning"
BASELINES = ("random", "l1", "l2", "soft", "fpgm", "bn-scale", "thinet", "hrank", "pfp")
CORRECTIONS = {
    "none": "no correction",
    "batch norm": "batch norms recalibrated",
    "T": "`T`",
    "T + refit": "`T` and refit",
}
"""Per correction, its column heading."""
WITH_PRESERVE_WIDTHS = ("l2", "fpgm")
KEEP = 0.5
# Suffixes of method names in the result file, and how tables show them.
INTERIORS, PRESERVE_WIDTHS = ", interiors only", ", our widths"
_SUFFIX_TITLES = {INTERIORS: ", block interiors only", PRESERVE_WIDTHS: ", widths of preserve"}

AddRow = Callable[[str, str, nn.Module], None]


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield one job per network and seed."""
    return jobs_per_network_and_seed(settings, _run)


def _run(settings: Settings, name: str, seed: int) -> list[Row]:
    subject = load_subject(settings, name)
    calibration, testing = subject.split(seed)
    rows: list[Row] = []

    def add(method: str, correction: str, smaller: nn.Module) -> None:
        row = {"network": name, "seed": seed, "method": method, "correction": correction}
        rows.append(row | subject.score(smaller, testing))

    everything = subject.analyze(calibration, seed=seed)
    add("preserve", "T + refit", everything.compress(flops=KEEP, progress=False).model)
    interiors = everything
    if subject.residual_streams:
        interiors = subject.analyze(calibration, seed=seed, interiors=True)
        smaller = interiors.compress(flops=KEEP, progress=False).model
        add("preserve" + INTERIORS, "T + refit", smaller)
    for method in ("iterative-id", "constant-id"):
        add(method, "T", interiors.compress(flops=KEEP, method=method, progress=False).model)
    for selection in settings.track(BASELINES, f"{name}, seed {seed}"):
        add_baseline(selection, interiors, calibration, add)
    for selection in WITH_PRESERVE_WIDTHS:
        result = interiors.compress(flops=KEEP, method=Method(selection=selection), progress=False)
        add(selection + PRESERVE_WIDTHS, "T + refit", result.model)
    if peers.available():
        _add_torch_pruning(subject, calibration, add)
    return rows


def add_baseline(selection: str, analysis: Analysis, calibration: Tensor, add: AddRow) -> None:
    """Add one baseline with every correction."""
    plain = Method(selection=selection, allocation="constant", refit=False, correct=False)
    smaller = analysis.compress(flops=KEEP, method=plain, progress=False).model
    add(selection, "none", smaller)
    add(selection, "batch norm", peers.recalibrate_batch_norms(smaller, calibration))
    for correction, refit in (("T", False), ("T + refit", True)):
        method = Method(selection=selection, allocation="constant", refit=refit)
        add(
            selection,
            correction,
            analysis.compress(flops=KEEP, method=method, progress=False).model,
        )


def _add_torch_pruning(subject: Subject, calibration: Tensor, add: AddRow) -> None:
    example = calibration[:2].to(subject.device)
    restrictions: dict[str, list[str]] = {"": []}
    if subject.residual_streams:
        restrictions[INTERIORS] = [
            name
            for name, module in subject.model.named_modules()
            if _writes_residual_stream(name, module)
        ]
    for importance in peers.IMPORTANCES:
        for suffix, ignored in restrictions.items():
            smaller = peers.torch_pruning(subject.model, example, importance, KEEP, ignored)
            method = f"Torch-Pruning {importance}{suffix}"
            add(method, "none", smaller)
            add(method, "batch norm", peers.recalibrate_batch_norms(smaller, calibration))


def _writes_residual_stream(name: str, module: nn.Module) -> bool:
    """Return whether a module is a convolution of ResNet-56 that writes to a residual stream."""
    return isinstance(module, nn.Conv2d) and not name.endswith(".conv1")


def method_title(method: str) -> str:
    """Return a method's name as tables show it."""
    for suffix, title in _SUFFIX_TITLES.items():
        method = method.replace(suffix, title)
    return method


def tables(report: Report) -> str:
    """Return agreement by method and correction, one table per network, and the margins."""
    parts = []
    for network in report.distinct("network"):
        used = {"none", *report.distinct("correction", network=network)}
        corrections = [correction for correction in CORRECTIONS if correction in used]
        lines = []
        for method in report.distinct("method", network=network):
            cells = [
                mean_with_interval(
                    _agreements(report, network=network, method=method, correction=correction), 2
                )
                for correction in corrections
            ]
            lines.append([method_title(method), *cells])
        header = ["method", *(CORRECTIONS[correction] for correction in corrections)]
        caption = f"**{network_title(network)}**: agreement with the original in percent"
        parts.append(f"{caption}\n\n" + table(header, lines))
    return "\n".join([*parts, margins(report)])


def _agreements(report: Report, **values: str) -> list[float]:
    return [row["agreement"] for row in report.where(**values)]


def margins(report: Report) -> str:
    """Return by how much `preserve` leads the best method of every kind, per seed."""
    lines = []
    for network in report.distinct("network"):
        for label, rows in _best_of_every_kind(report, network).items():
            margin = leads(report, network, rows)
            mean = sum(margin) / len(margin)
            above_zero = len(margin) > 1 and mean - interval_half_width(margin) > 0
            lines.append([
                network_title(network), label, mean_with_interval(margin, 2),
                "yes" if above_zero else "no",
            ])  # fmt: skip
    header = ["network", "compared with the best", "margin, points", "interval above 0"]
    caption = "**Margins**: agreement of `preserve` minus that of another method, same seed"
    return f"{caption}\n\n" + table(header, lines, text_columns=2)


def leads(report: Report, network: str, rows: list[Row]) -> list[float]:
    """Return the agreement of `preserve` minus that of these rows, seed by seed."""
    preserve = {
        row["seed"]: row["agreement"] for row in report.where(network=network, method="preserve")
    }
    return [preserve[row["seed"]] - row["agreement"] for row in rows]


def _best_of_every_kind(report: Report, network: str) -> dict[str, list[Row]]:
    """Return the rows of the method with the highest mean, per kind of method."""
    kinds: dict[str, list[Row]] = {}
    for row in report.where(network=network):
        if not row["method"].startswith("preserve"):
            kinds.setdefault(_kind(row), []).append(row)
    return {
        f"{kind}: {method_title(best)}": [row for row in rows if row["method"] == best]
        for kind, rows in kinds.items()
        for best in [best_method(rows)]
    }


def _kind(row: Row) -> str:
    if row["method"].endswith("-id"):
        return "method of the paper"
    if row["method"].endswith(PRESERVE_WIDTHS):
        return "other channel order"
    tool = "Torch-Pruning" if row["method"].startswith("Torch-Pruning") else "baseline"
    return f"{tool} ({CORRECTIONS[row['correction']]})"


def best_method(rows: list[Row]) -> str:
    """Return the method with the highest mean agreement."""
    agreements: dict[str, list[float]] = {}
    for row in rows:
        agreements.setdefault(row["method"], []).append(row["agreement"])
    return max(agreements, key=lambda method: sum(agreements[method]) / len(agreements[method]))


def draw(report: Report, folder: Path) -> None:
    """Plot the agreement of every baseline with every correction."""
    from benchmarks.plots import COLOURS, figure, legend_below

    networks = report.distinct("network")
    with figure(folder / "baselines.svg", len(networks)) as axes:
        for axis, network in zip(axes, networks, strict=True):
            for colour, (correction, title) in zip(COLOURS, CORRECTIONS.items(), strict=False):
                means = []
                for method in BASELINES:
                    values = _agreements(
                        report, network=network, method=method, correction=correction
                    )
                    means.append(sum(values) / max(len(values), 1))
                axis.plot(BASELINES, means, "o-", color=colour, label=title.replace("`", ""))
            values = _agreements(report, network=network, method="preserve")
            axis.axhline(sum(values) / len(values), color=COLOURS[5], ls="--", label="preserve")
            axis.set_title(network_title(network))
            axis.tick_params(axis="x", rotation=60)
            axis.set_ylabel("agreement, %")
        legend_below(axes[0], 0.45)
