"""The command `python -m benchmarks preserve`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.markdown import Markdown

import benchmarks.preserve
from benchmarks.examples import EFFICIENTNET
from benchmarks.experiment import RESULTS, ExperimentError, Row
from benchmarks.networks import NETWORKS
from benchmarks.preserve import cost, distilled, quality, tried, variants
from benchmarks.preserve.tables import markdown
from benchmarks.preserve.task import DIGITS, Task
from benchmarks.provenance import set_aside, stamp

MEASUREMENTS: dict[str, Callable[[Task], Iterator[Row]]] = {
    function.__name__: function
    for function in (
        quality.agreement,
        quality.parts,
        quality.budgets,
        distilled.distill,
        tried.tried,
        cost.cost,
        cost.loop,
        cost.latency,
        cost.memory,
        cost.peak,
    )
}


_WITH_OTHER_NETWORKS = ("distill", "tried")
"""The measurements that also take networks other than those of CIFAR-10."""


def main(arguments: list[str] | None = None) -> None:
    """Run one measurement and write its files after every row."""
    options = _parse(arguments)
    measurement = options.measurement
    device = torch.device(options.device)
    options.out.mkdir(parents=True, exist_ok=True)
    stem = f"preserve-{measurement}-{device.type}{options.suffix}"
    set_aside(options.out / f"{stem}.json")
    report: Row = {}
    for report in _reports(options, stem, device):
        (options.out / f"{stem}.json").write_text(json.dumps(report, indent=1) + "\n")
        (options.out / f"{stem}.md").write_text(markdown(measurement, report))
    if report:
        Console(width=100).print(Markdown(markdown(measurement, report)))


def _reports(options: argparse.Namespace, stem: str, device: torch.device) -> Iterator[Row]:
    """Yield the report after every row, or that of all files to merge."""
    if options.merge:
        yield _merged(options.merge)
        return
    report: Row = {
        **stamp(stem, device),
        "data": _data_of(options.networks),
        "images": options.images,
        "rows": [],
    }
    for row in MEASUREMENTS[options.measurement](Task(options)):
        report["rows"].append(row)
        yield report


def merge(measurement: str, paths: Sequence[Path], target: Path) -> None:
    """Write one result file, and its table, from the result files of several runs."""
    report = _merged(paths)
    target.write_text(json.dumps(report, indent=1) + "\n")
    target.with_suffix(".md").write_text(markdown(measurement, report))


def _merged(paths: Sequence[Path]) -> Row:
    """Return the report of the first file with the rows of all; their code must be the same."""
    reports: list[Row] = [json.loads(path.read_text()) for path in paths]
    for key in ("interpress", "code", "machine"):
        values = {path.name: report[key] for path, report in zip(paths, reports, strict=True)}
        if len(set(values.values())) > 1:
            raise ExperimentError(f"the files differ in {key!r}: {values}; merge files of one kind")
    data = ", ".join(dict.fromkeys(report["data"] for report in reports))
    rows = [row for report in reports for row in report["rows"]]
    return {**reports[0], "data": data, "rows": rows}


def _data_of(networks: list[str]) -> str:
    """Return the names of the data sets of some networks."""
    others = {DIGITS: "digits", EFFICIENTNET: "ImageNet samples"}
    return ", ".join(dict.fromkeys(others.get(name, "CIFAR-10 (JPEG)") for name in networks))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    summaries = "\n".join(
        f"  {name:12} {(function.__doc__ or '').splitlines()[0]}"
        for name, function in MEASUREMENTS.items()
    )
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks preserve",
        description=f"{benchmarks.preserve.__doc__}\n{summaries}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("measurement", choices=MEASUREMENTS, metavar="MEASUREMENT")
    parser.add_argument("--data", type=Path, help="folder of CIFAR-10")
    parser.add_argument("--weights", type=Path, help="folder with the trained networks")
    parser.add_argument("--device", default="cpu", help="device to run on (default: cpu)")
    parser.add_argument(
        "--networks",
        nargs="+",
        default=list(NETWORKS),
        choices=[*NETWORKS, EFFICIENTNET, DIGITS],
        help="networks to measure (default: those of CIFAR-10; "
        f"{' and '.join(_WITH_OTHER_NETWORKS)}: also {EFFICIENTNET} and {DIGITS})",
    )
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument(
        "--flops",
        nargs="+",
        type=float,
        default=[0.5, 0.3],
        help="fractions of the FLOPs to keep (default: 0.5 0.3)",
    )
    parser.add_argument(
        "--images", type=int, default=1000, help="number of calibration images (default: 1000)"
    )
    parser.add_argument(
        "--calibration",
        nargs="+",
        default=["test", "train"],
        choices=["test", "train"],
        help="agreement: where the calibration images come from (default: test train)",
    )
    parser.add_argument("--train-limit", type=int, help="number of training images to read")
    parser.add_argument(
        "--minutes",
        type=float,
        default=2.0,
        help="distill and tried: minutes to train (default: 2)",
    )
    parser.add_argument(
        "--steps",
        type=int,
        help="tried: gradient steps to train, instead of --minutes, so that all have equal work",
    )
    parser.add_argument(
        "--variants",
        nargs="+",
        default=list(variants.VARIANTS),
        choices=variants.VARIANTS,
        metavar="VARIANT",
        help=f"tried: what to measure (default: all of {', '.join(variants.VARIANTS)})",
    )
    parser.add_argument(
        "--lowrank", action="store_true", help="distill: also replace layers by two thin ones"
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="cost: repeats per median (default: 5)"
    )
    parser.add_argument(
        "--batch", type=int, default=100, help="latency: images per batch (default: 100)"
    )
    parser.add_argument("--suffix", default="", help="appended to the names of the result files")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument(
        "--merge",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="measure nothing; write the rows of these result files to one",
    )
    options = parser.parse_args(arguments)
    if not options.merge:
        _check_networks(parser, options)
    return options


def _check_networks(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with a message if a network cannot be measured with these options."""
    names = set(options.networks)
    others = names - set(NETWORKS)
    if others and options.measurement not in _WITH_OTHER_NETWORKS:
        parser.error(f"{options.measurement} takes networks of CIFAR-10 only")
    if names - {DIGITS} and options.data is None:
        parser.error("--data is missing: give the folder with the images")
    if names - others and options.weights is None:
        parser.error("--weights is missing: give the folder with the trained networks")
