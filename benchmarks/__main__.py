"""Run an experiment or a benchmark.

    python -m benchmarks NAME [--data DIR] [--weights DIR] [--device cuda] [--quick]

NAME is one of the experiments below, or `all`: without --quick, everything that the pages show, see
`python -m benchmarks all --help`. linalg, coverage, examples, onnx, scale, language,
language-distill, language-quantize, language-speed, language-trained, preserve and page have their
own options (`python -m benchmarks linalg --help`).
Results are written to benchmarks/results, and with --quick to build/quick. A run that was
interrupted continues where it stopped.
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

from benchmarks import plan, runner
from benchmarks.experiment import (
    QUICK_RESULTS,
    RESULTS,
    ExperimentError,
    Report,
    Settings,
    experiments,
)

COMMANDS = {
    "linalg": "benchmarks.linalg",
    "coverage": "benchmarks.coverage",
    "examples": "benchmarks.examples",
    "onnx": "benchmarks.onnx_files",
    "scale": "benchmarks.scale",
    "language": "benchmarks.language.command",
    "language-distill": "benchmarks.language.distill",
    "language-quantize": "benchmarks.language.quantize",
    "language-speed": "benchmarks.language.speed",
    "language-trained": "benchmarks.language.trained",
    "preserve": "benchmarks.preserve.command",
    "page": "benchmarks.page",
}
"""The module of every command that parses its own options."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command, one experiment, or all experiments."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] in COMMANDS:
        importlib.import_module(COMMANDS[words[0]]).main(words[1:])
        return
    if words[:1] == ["all"] and "--quick" not in words:
        plan.main(words[1:])
        return
    modules = experiments()
    options = _parse(words, modules)
    out = options.out or (QUICK_RESULTS if options.quick else RESULTS)
    names = list(modules) if options.name == "all" else [options.name]
    skipped: list[str] = []
    for name in names:
        try:
            report = _report(name, modules[name], out, options)
        except ExperimentError as problem:
            if len(names) == 1:
                raise
            skipped.append(f"{name}: {problem}")
            continue
        Console(width=100).print(Markdown(modules[name].tables(report)))
    if skipped:
        raise ExperimentError("not run:\n" + "\n".join(skipped))


def _parse(words: list[str], modules: dict[str, ModuleType]) -> argparse.Namespace:
    summaries = "\n".join(f"  {name:12} {module.ABOUT}" for name, module in modules.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"{__doc__}\n{summaries}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=[*modules, "all"], metavar="NAME")
    parser.add_argument("--data", type=Path, help="folder with the data set")
    parser.add_argument("--weights", type=Path, help="folder with the trained networks")
    parser.add_argument("--device", default="cpu", help="device to run on (default: cpu)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a small version that takes minutes; without --data it uses digits",
    )
    parser.add_argument("--seeds", type=int, help="number of repetitions")
    parser.add_argument(
        "--only", default="", metavar="PART", help="run only the jobs whose key contains PART"
    )
    parser.add_argument("--out", type=Path, help="folder for the results")
    parser.add_argument("--fresh", action="store_true", help="discard earlier results")
    parser.add_argument(
        "--redraw",
        action="store_true",
        help="run nothing; write tables and plots from the result file",
    )
    options = parser.parse_args(words)
    if options.seeds is not None and options.seeds < 1:
        parser.error(f"--seeds {options.seeds}: give at least 1")
    try:
        torch.zeros(1, device=options.device)
    except (RuntimeError, AssertionError) as problem:
        parser.error(f"--device {options.device}: {str(problem).splitlines()[0]}")
    return options


def _report(name: str, module: ModuleType, out: Path, options: argparse.Namespace) -> Report:
    """Run an experiment, or with --redraw load its report and publish it again."""
    if not options.redraw:
        settings = Settings(
            options.data,
            options.weights,
            options.device,
            options.quick,
            options.seeds,
            options.only,
        )
        return runner.run(name, module, settings, out, options.fresh)
    path = out / f"{name}.json"
    if not path.is_file():
        raise ExperimentError(f"{path} does not exist; run {name} first")
    report = Report.load(path)
    runner.publish(name, module, report, out)
    return report


if __name__ == "__main__":
    main()
