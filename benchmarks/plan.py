"""Run everything that the pages show, the most important tables first.

    python -m benchmarks all --data DIR --weights DIR [--device cuda] [--budget-minutes 30]

Before it starts, the command prints every step with its expected time. A step that is done with
this code is not run again. With --budget-minutes, it stops when the time is over, and the same
command goes on later: experiments continue with their next job, other steps are only begun if they
fit into the time that is left. --list only prints the plan.

With --processes, the parts of all steps run side by side, each in a process of its own, so that
they fill a GPU that one of them does not. Run times are then not measured fairly: steps that
measure them wait until the others are done, and run alone.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.experiment import ExperimentError
from benchmarks.packaged import is_installed
from benchmarks.parts import Part, parts_of, run_side_by_side, unite
from benchmarks.provenance import code_hash, machine_name
from benchmarks.steps import STEPS, Step

STATE = Path("build") / "evidence-plan.json"
_PYTHON = (sys.executable, "-m", "benchmarks")


class Plan:
    """Which steps are done, and how long they took."""

    def __init__(self, options: argparse.Namespace, steps: Sequence[Step] = STEPS) -> None:
        self.options = options
        self.device = torch.device(options.device)
        self.machine = machine_name(self.device)
        self.state: dict[str, Any] = _read(options.state)
        self.steps = [step for step in steps if self.device.type in step.minutes]
        if options.steps:
            known = {step.result: step for step in self.steps}
            if unknown := set(options.steps) - set(known):
                raise ExperimentError(
                    f"--steps {' '.join(sorted(unknown))}: give some of {', '.join(known)}"
                )
            self.steps = [known[name] for name in options.steps]

    def is_done(self, step: Step) -> bool:
        """Return whether the step was finished with this code."""
        return bool(self._entry(step).get("done") == code_hash(step.result))

    def minutes(self, step: Step) -> float:
        """Return how long the step takes: what it took here before, or else the known time."""
        entry = self._entry(step)
        if entry.get("machine") == self.machine and "minutes" in entry:
            return float(entry["minutes"])
        return step.minutes[self.device.type]

    def missing(self, step: Step) -> str | None:
        """Return why the step cannot run, or None."""
        for option in step.needs:
            if getattr(self.options, option) is None:
                return f"needs --{option.replace('_', '-')}"
        if step.package and not _imports(step.package):
            return f"needs {step.package}"
        for package in step.files_of:
            if not is_installed(package):
                return f"needs {package}"
        return None

    def command(self, step: Step) -> list[str]:
        """Return the whole command of a step."""
        filled = [word.format(**vars(self.options)) for word in step.words]
        words = [*_PYTHON, *filled]
        for option in step.needs if filled == list(step.words) else ():
            words += [f"--{option}", str(getattr(self.options, option))]
        takes_device = self.device.type != "cpu"
        return [*words, "--device", self.options.device] if takes_device else words

    def run(self, step: Step, seconds: float) -> bool:
        """Run a step for at most this many seconds, and return whether it was finished."""
        start = time.monotonic()
        process = Popen(self.command(step))
        try:
            code = process.wait(None if seconds == float("inf") else max(1.0, seconds))
        except (TimeoutExpired, KeyboardInterrupt) as problem:
            process.send_signal(signal.SIGINT)  # the result file has all finished jobs
            process.wait()
            if isinstance(problem, KeyboardInterrupt):
                raise
            return False
        if code == 0:
            self._finish(step, minutes=round((time.monotonic() - start) / 60, 2))
        return code == 0

    def parts(self, step: Step) -> list[Part]:
        """Return the parts of a step that can run side by side."""
        words = self.command(step)[len(_PYTHON) :]
        return parts_of(step.result, words, self.options, step.variants)

    def run_parts(self, steps: Sequence[Step], processes: int, seconds: float) -> list[str]:
        """Run the parts of some steps, and return the names of the steps that failed.

        A step is done when all of its parts are, in this run or an earlier one.
        """
        parts = [self.parts(step) for step in steps]
        failed = run_side_by_side([part for own in parts for part in own], processes, seconds)
        for step, own in zip(steps, parts, strict=True):
            if all(part.file is not None for part in own):
                unite(own)
                self._finish(step)
        return list(dict.fromkeys(part.step for part in failed))

    def _finish(self, step: Step, **measured: float) -> None:
        """Remember that a step is done."""
        entry = {"done": code_hash(step.result), **measured, "machine": self.machine}
        self.state[step.result] = entry
        self.options.state.parent.mkdir(parents=True, exist_ok=True)
        self.options.state.write_text(json.dumps(self.state, indent=1) + "\n")

    def table(self) -> Table:
        """Return the plan as a table."""
        table = Table(title=f"On {self.machine}", width=80)
        for name in ("step", "command", "minutes"):
            table.add_column(name, justify="right" if name == "minutes" else "left")
        for step in self.steps:
            note = self.missing(step) or ("done" if self.is_done(step) else None)
            table.add_row(step.result, " ".join(step.words), note or f"{self.minutes(step):.0f}")
        return table

    def _entry(self, step: Step) -> dict[str, Any]:
        return dict(self.state.get(step.result, {}))


def main(words: list[str], steps: Sequence[Step] = STEPS) -> None:
    """Print the plan, then run the steps that are not done."""
    options = _parse(words)
    plan = Plan(options, steps)
    console = Console(stderr=True)
    console.print(plan.table())
    waiting = [s for s in plan.steps if not plan.is_done(s) and plan.missing(s) is None]
    together = [s for s in waiting if s.variants or (options.processes > 1 and not s.times)]
    alone = [step for step in waiting if step not in together]
    total = sum(plan.minutes(step) for step in alone)
    total += sum(plan.minutes(step) for step in together) / options.processes
    console.print(f"{len(waiting)} steps to run, about {total:.0f} minutes in all.")
    if options.list:
        return
    deadline = time.monotonic() + 60 * options.budget_minutes
    failed = plan.run_parts(together, options.processes, deadline - time.monotonic())
    for step in alone:
        left = deadline - time.monotonic()
        if left <= 0 or (not step.continues and left < 60 * plan.minutes(step)):
            console.print(f"{step.result}: not begun, the time left is {max(0, left) / 60:.0f} min")
            continue
        if not plan.run(step, left) and time.monotonic() < deadline:
            failed.append(step.result)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}; their messages are above")


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks all",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    parser.add_argument("--weights", type=Path, help="folder with the trained networks")
    parser.add_argument(
        "--language-model", type=Path, metavar="MODEL", help="folder or GGUF file of SmolLM2"
    )
    parser.add_argument("--device", default="cpu", help="device to run on (default: cpu)")
    parser.add_argument("--budget-minutes", type=float, default=float("inf"), metavar="MINUTES")
    parser.add_argument("--list", action="store_true", help="print the plan only")
    parser.add_argument(
        "--steps", nargs="+", metavar="STEP", help="only these, in this order (default: all)"
    )
    parser.add_argument(
        "--processes", type=int, default=1, help="parts of steps to run side by side (default: 1)"
    )
    parser.add_argument(
        "--state", type=Path, default=STATE, help="file that remembers what is done"
    )
    options = parser.parse_args(words)
    if not options.budget_minutes > 0:
        parser.error(f"--budget-minutes {options.budget_minutes:g}: give a positive number")
    if options.processes < 1:
        parser.error(f"--processes {options.processes}: give at least 1")
    return options


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.is_file() else {}


def _imports(package: str) -> bool:
    try:
        __import__(package)
    except (ImportError, RuntimeError):
        return False
    return True
