"""Every experiment by one command.

    python -m benchmarks NAME [--data DIR] [--weights DIR] [--device cuda] [--quick]

NAME is one of the experiments below, `all`, or one of linalg, coverage, preserve, page, which have
options of their own (`python -m benchmarks linalg --help`). Results go to benchmarks/results, with
--quick to build/quick. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from types import ModuleType

import torch
from rich.console import Console
from rich.markdown import Markdown

from benchmarks import experiment
from benchmarks.experiment import QUICK, RESULTS, ExperimentError, Report, Setting

OWN = ("linalg", "coverage", "preserve", "page")


def main(arguments: list[str] | None = None) -> None:
    """Run one experiment, or all."""
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] in OWN:
        importlib.import_module(f"benchmarks.{given[0]}").main(given[1:])
        return
    known = experiment.experiments()
    listed = "\n".join(f"  {name:12} {module.ABOUT}" for name, module in known.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"{__doc__}\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=[*known, "all"], metavar="NAME")
    parser.add_argument("--data", type=Path, help="folder with the data")
    parser.add_argument("--weights", type=Path, help="folder with trained networks")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="minutes; without --data on digits")
    parser.add_argument("--seeds", type=int, help="how many repetitions")
    parser.add_argument("--only", default="", metavar="PART", help="jobs whose key holds this")
    parser.add_argument("--out", type=Path, help="where results go")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--redraw", action="store_true", help="tables and plots from the files")
    options = parser.parse_args(given)
    if options.seeds is not None and options.seeds < 1:
        parser.error(f"--seeds {options.seeds}: give at least 1")
    _check_device(parser, options.device)
    out = options.out or (QUICK if options.quick else RESULTS)
    names = list(known) if options.name == "all" else [options.name]
    left: list[str] = []
    for name in names:
        setting = Setting(
            options.data,
            options.weights,
            options.device,
            options.quick,
            options.seeds,
            options.only,
        )
        try:
            report = _report(name, known[name], setting, out, options)
        except ExperimentError as problem:
            if len(names) == 1:
                raise
            left.append(f"{name}: {problem}")  # the others go on
            continue
        Console(width=100).print(Markdown(known[name].tables(report)))
    if left:
        raise ExperimentError("not run:\n" + "\n".join(left))


def _report(
    name: str, module: ModuleType, setting: Setting, out: Path, options: argparse.Namespace
) -> Report:
    if not options.redraw:
        return experiment.run(name, module, setting, out, options.fresh)
    path = out / f"{name}.json"
    if not path.is_file():
        raise ExperimentError(f"there is no {path} to draw; run {name} first")
    report = Report.load(path)
    experiment.publish(name, module, report, out)
    return report


def _check_device(parser: argparse.ArgumentParser, device: str) -> None:
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as problem:
        parser.error(f"--device {device}: {str(problem).splitlines()[0]}")


if __name__ == "__main__":
    main()
