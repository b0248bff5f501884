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

from rich.console import Console
from rich.markdown import Markdown

from benchmarks import experiment
from benchmarks.experiment import QUICK, RESULTS, Report, Setting

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
    out = options.out or (QUICK if options.quick else RESULTS)
    names = list(known) if options.name == "all" else [options.name]
    for name in names:
        setting = Setting(
            options.data,
            options.weights,
            options.device,
            options.quick,
            options.seeds,
            options.only,
        )
        if options.redraw:
            report = Report.load(out / f"{name}.json")
            experiment.publish(name, known[name], report, out)
        else:
            report = experiment.run(name, known[name], setting, out, options.fresh)
        Console(width=100).print(Markdown(known[name].tables(report)))


if __name__ == "__main__":
    main()
