"""The command `python -m benchmarks preserve`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from rich.console import Console
from rich.markdown import Markdown

import benchmarks.preserve
from benchmarks.examples import EFFICIENTNET
from benchmarks.experiment import RESULTS, Row
from benchmarks.networks import NETWORKS
from benchmarks.preserve import cost, distilled, quality
from benchmarks.preserve.tables import markdown
from benchmarks.preserve.task import Task
from benchmarks.provenance import set_aside, stamp

MEASUREMENTS: dict[str, Callable[[Task], Iterator[Row]]] = {
    function.__name__: function
    for function in (
        quality.agreement,
        quality.parts,
        quality.budgets,
        distilled.distill,
        cost.cost,
        cost.loop,
        cost.latency,
        cost.memory,
        cost.peak,
    )
}


def main(arguments: list[str] | None = None) -> None:
    """Run one measurement and write its files after every row."""
    options = _parse(arguments)
    measurement = options.measurement
    device = torch.device(options.device)
    options.out.mkdir(parents=True, exist_ok=True)
    stem = f"preserve-{measurement}-{device.type}{options.suffix}"
    set_aside(options.out / f"{stem}.json")
    report: Row = {
        **stamp(stem, device),
        "data": "CIFAR-10 (JPEG)",
        "images": options.images,
        "rows": [],
    }
    for row in MEASUREMENTS[measurement](Task(options)):
        report["rows"].append(row)
        (options.out / f"{stem}.json").write_text(json.dumps(report, indent=1) + "\n")
        (options.out / f"{stem}.md").write_text(markdown(measurement, report))
    if report["rows"]:
        Console(width=100).print(Markdown(markdown(measurement, report)))


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
    parser.add_argument("--data", type=Path, required=True, help="folder of CIFAR-10")
    parser.add_argument(
        "--weights", type=Path, required=True, help="folder with the trained networks"
    )
    parser.add_argument("--device", default="cpu", help="device to run on (default: cpu)")
    parser.add_argument(
        "--networks",
        nargs="+",
        default=list(NETWORKS),
        choices=[*NETWORKS, EFFICIENTNET],
        help=f"networks to measure (default: those of CIFAR-10; distill: also {EFFICIENTNET})",
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
        "--minutes", type=float, default=2.0, help="distill: minutes to train (default: 2)"
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
    return parser.parse_args(arguments)
