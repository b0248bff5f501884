"""Parts of a step that run in processes of their own, side by side.

An experiment has one part per job. A measurement of `preserve` has one part per network and seed.
Every part writes a result file into `build/`, in a folder named after the code that it measures. A
part whose file is there is not run again. When all parts of a step are done, they become one file.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen

from benchmarks import runner
from benchmarks.experiment import RESULTS, Report, Settings, experiments
from benchmarks.networks import NETWORKS
from benchmarks.provenance import code_hash, set_aside

_SEEDS = 3  # of a measurement of `preserve`, if the step does not say
_LOOK_AGAIN = 0.2  # seconds between two looks at the running processes


@dataclass(frozen=True)
class Part:
    """A command that measures a part of a step."""

    step: str
    """The name of the step's result file, without its ending."""
    command: tuple[str, ...]
    """What follows `python -m benchmarks`."""
    folder: Path

    @property
    def file(self) -> Path | None:
        """The result file of this part; None if it has not been finished."""
        is_done = (self.folder / "done").is_file()
        return next(self.folder.glob("*.json"), None) if is_done else None


def parts_of(
    result: str,
    command: Sequence[str],
    options: Namespace,
    variants: Sequence[Sequence[str]] = (),
) -> list[Part]:
    """Return the parts of the step that writes `result`.

    `command` is that of the whole step. It runs with each of some further options, `variants`.
    """
    root = options.state.parent / "parts" / code_hash(result) / result
    parts = []
    for variant in variants or [()]:
        for name, words in _split((*command, *variant), options):
            folder = root / re.sub(r"[^\w.]+", "-", "-".join((*variant, name))).strip("-")
            parts.append(Part(result, (*words, "--out", str(folder)), folder))
    return parts


def _split(words: tuple[str, ...], options: Namespace) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield a name and a command for every part of a command."""
    name = words[0]
    if name in experiments():
        settings = Settings(options.data, options.weights, options.device)
        for job in experiments()[name].jobs(settings):
            yield job.key, (*words, "--only", job.key)
    elif name == "preserve":
        parser = ArgumentParser(allow_abbrev=False)
        parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
        parser.add_argument("--seeds", type=int, default=_SEEDS)
        given, others = parser.parse_known_args(words)
        for network in given.networks:
            for seed in range(given.seeds):
                of_one = ("--networks", network, "--first-seed", str(seed), "--seeds", "1")
                yield f"{network}-{seed}", (*others, *of_one)
    else:
        yield "whole", words


def run_side_by_side(parts: Sequence[Part], processes: int, seconds: float) -> list[Part]:
    """Run parts that are not done, in order, and return those that failed.

    After `seconds`, the running ones are stopped, and no others are begun.
    """
    waiting = [part for part in parts if part.file is None]
    running: dict[Part, Popen[bytes]] = {}
    failed: list[Part] = []
    deadline = time.monotonic() + seconds
    threads = str(max(1, (os.cpu_count() or 1) // processes))
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    try:
        while waiting or running:
            if time.monotonic() >= deadline:
                break
            while waiting and len(running) < processes:
                part = waiting.pop(0)
                running[part] = _start(part, environment)
            time.sleep(_LOOK_AGAIN)
            for part, process in list(running.items()):
                if (code := process.poll()) is not None:
                    del running[part]
                    if code == 0:
                        (part.folder / "done").touch()
                    else:
                        failed.append(part)
    finally:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for process in running.values():
            process.wait()
    return failed


def _start(part: Part, environment: dict[str, str]) -> Popen[bytes]:
    part.folder.mkdir(parents=True, exist_ok=True)
    with (part.folder / "log.txt").open("wb") as log:
        return Popen(
            [sys.executable, "-m", "benchmarks", *part.command],
            env=environment, stdin=DEVNULL, stdout=log, stderr=STDOUT,
        )  # fmt: skip


def unite(parts: Sequence[Part], out: Path = RESULTS) -> Path:
    """Write the result file of a step from those of its parts."""
    result, name = parts[0].step, parts[0].command[0]
    files = [part.file for part in parts if part.file is not None]
    target = out / f"{result}.json"
    out.mkdir(parents=True, exist_ok=True)
    set_aside(target)
    if name in experiments():
        reports = [Report.load(file) for file in files]
        about = {
            **reports[0].about,
            "runs": [run for report in reports for run in report.about["runs"]],
        }
        united = Report(about, {key: rows for r in reports for key, rows in r.rows.items()})
        united.save(target)
        runner.publish(name, experiments()[name], united, out)
    elif name == "preserve":
        command = importlib.import_module("benchmarks.preserve.command")
        command.merge(parts[0].command[1], files, target)
    else:
        for file in files[0].parent.glob(f"{files[0].stem}*"):
            (out / file.name).write_bytes(file.read_bytes())
    return target
