"""How an experiment is run: jobs one after the other, every result written at once, resumable.

An experiment is a module in `benchmarks.experiments` with

    ABOUT                      one line
    jobs(setting)              an iterable of Job: a key, and work that returns rows
    tables(report)             Markdown, from the rows alone
    draw(report, folder)       plots, from the rows alone (optional)

Rows are plain JSON. A job whose key is in the result file already is not run again.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pkgutil
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

import benchmarks.experiments
import interpress

RESULTS = Path(__file__).parent / "results"
QUICK = Path("build") / "quick"
Row = dict[str, Any]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Job:
    """One piece of work; its rows are stored under its key."""

    key: str
    work: Callable[[], list[Row]]


@dataclass(eq=False)
class Setting:
    """What an experiment is run with."""

    data: Path | None = None
    weights: Path | None = None
    device: str = "cpu"
    quick: bool = False
    seeds: int | None = None
    only: str = ""
    bars: Progress | None = field(default=None, repr=False)

    def folder(self, name: str) -> Path | None:
        """Where a data set is: the folder of that name in --data, or --data itself."""
        if self.data is None:
            return None
        return self.data / name if (self.data / name).is_dir() else self.data

    def count(self, full: int, quick: int) -> int:
        """A size that depends on how long the run may take."""
        return quick if self.quick else full

    def draws(self, full: int, quick: int = 1) -> range:
        """The seeds of an experiment; --seeds overrides how many."""
        return range(self.seeds or self.count(full, quick))

    def track(self, items: Sequence[Item], label: str) -> Iterator[Item]:
        """The items, with a bar of their own."""
        if self.bars is None:
            yield from items
            return
        task = self.bars.add_task(label, total=len(items))
        for item in items:
            yield item
            self.bars.advance(task)
        self.bars.remove_task(task)


@dataclass(eq=False)
class Report:
    """All rows of an experiment with where they come from; a JSON file."""

    about: Row
    rows: dict[str, list[Row]]

    @property
    def all(self) -> list[Row]:
        """The rows of all jobs."""
        return [row for rows in self.rows.values() for row in rows]

    def where(self, **wanted: Any) -> list[Row]:
        """The rows that have these values."""
        return [r for r in self.all if all(r.get(key) == value for key, value in wanted.items())]

    @classmethod
    def load(cls, path: Path) -> Report:
        """From its file."""
        stored = json.loads(path.read_text())
        return cls(stored["about"], stored["rows"])

    def save(self, path: Path) -> None:
        """Written beside and moved into place."""
        beside = path.with_suffix(".part")
        beside.write_text(json.dumps({"about": self.about, "rows": self.rows}, indent=1) + "\n")
        os.replace(beside, path)


class ExperimentError(SystemExit):
    """Something the user has to change; said without a traceback."""


def experiments() -> dict[str, ModuleType]:
    """All experiments by name."""
    found = pkgutil.iter_modules(benchmarks.experiments.__path__)
    return {
        one.name: importlib.import_module(f"benchmarks.experiments.{one.name}") for one in found
    }


def run(name: str, module: ModuleType, setting: Setting, out: Path, fresh: bool) -> Report:
    """Run what is not there yet; write JSON after every job, tables and plots at the end."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.json"
    report, now = _resumed(path, name, setting, fresh)
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as bars:
        setting.bars = bars
        every = list(module.jobs(setting))
        jobs = [job for job in every if setting.only in job.key]
        if not jobs:
            raise ExperimentError(
                f"no job of {name} has {setting.only!r} in its key; they are, for example, "
                f"{', '.join(job.key for job in every[:3])}"
            )
        task = bars.add_task(name, total=len(jobs))
        for job in jobs:
            if job.key not in report.rows:
                started = time.perf_counter()
                rows = job.work()
                report.rows[job.key] = rows
                now["seconds"] = round(now["seconds"] + time.perf_counter() - started, 1)
                report.save(path)
            bars.advance(task)
    setting.bars = None
    publish(name, module, report, out)
    return report


def publish(name: str, module: ModuleType, report: Report, out: Path) -> None:
    """Tables and plots of a report."""
    (out / f"{name}.md").write_text(heading(report) + "\n" + module.tables(report))
    if hasattr(module, "draw"):
        try:
            import matplotlib as mpl
        except ImportError:
            Console(stderr=True).print("no plots: install matplotlib, then run with --redraw")
            return
        mpl.use("Agg")
        mpl.rcParams["svg.hashsalt"] = name  # the same rows give the same file
        try:
            module.draw(report, out)
        except (IndexError, KeyError, StopIteration, ZeroDivisionError) as missing:
            Console(stderr=True).print(
                f"no plots of {name}: some jobs they show are not done yet ({missing!r})"
            )


def heading(report: Report) -> str:
    """Where the rows of a report come from, a line for every kind of run."""
    kinds: dict[tuple[str, ...], dict[str, float]] = {}
    for run in report.about["runs"]:
        command, only, part = run["command"].partition(" --only ")
        about = (run["date"], run["machine"], f"torch {run['torch']}")
        kinds.setdefault((command + only, *about), {})[part] = run["seconds"]
    lines = []
    for (command, *place), parts in kinds.items():
        where, ((part, seconds), *more) = ", ".join(place), parts.items()
        if not more:
            lines.append(f"`{command}{part}`, {where}, {seconds:.0f} s.")
            continue
        each = ", ".join(f"`{part}` ({seconds:.0f} s)" for part, seconds in parts.items())
        lines.append(f"`{command}PART`, {where}, for every PART of {each}.")
    return "\n".join(lines) + "\n"


def _run(name: str, setting: Setting) -> Row:
    """What is being run, where and when."""
    options = [f"python -m benchmarks {name}"]
    options += ["--data DIR"] if setting.data else []
    options += ["--weights DIR"] if setting.weights else []
    options += [f"--device {setting.device}"] if setting.device != "cpu" else []
    options += [f"--seeds {setting.seeds}"] if setting.seeds else []
    options += [f"--only {setting.only}"] if setting.only else []
    options += ["--quick"] if setting.quick else []
    return {
        "command": " ".join(options),
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(torch.device(setting.device)),
        "torch": torch.__version__.split("+")[0],
        "python": platform.python_version(),
        "interpress": interpress.__version__,
        "seconds": 0.0,
    }


def machine(device: torch.device) -> str:
    """The machine in words."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    model = platform.processor() or platform.machine()
    return f"a {torch.get_num_threads()}-core {model} CPU"


def _resumed(path: Path, name: str, setting: Setting, fresh: bool) -> tuple[Report, Row]:
    """The results so far, and the entry of this run among those that made them."""
    options = {
        "quick": setting.quick,
        "data": setting.data is not None,
        "weights": _digests(setting.weights),
    }
    now = _run(name, setting)
    if fresh or not path.is_file():
        return Report({"experiment": name, "options": options, "runs": [now]}, {}), now
    report = Report.load(path)
    if report.about["options"] != options:
        raise ExperimentError(
            f"{path} holds results of `{report.about['runs'][0]['command']}`, perhaps with other "
            f"weights, which `{now['command']}` cannot go on with; write elsewhere with --out, or "
            "start over with --fresh"
        )
    for earlier in report.about["runs"]:
        if {**earlier, "seconds": 0.0} == now:
            return report, earlier
    report.about["runs"].append(now)
    return report, now


def _digests(folder: Path | None) -> dict[str, str]:
    """What the trained networks of a run are, in short."""
    if folder is None or not folder.is_dir():
        return {}
    files = sorted(folder.glob("*.safetensors"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:12] for file in files}


def need(path: Path | None, option: str, what: str) -> Path:
    """A folder the user has to give."""
    if path is None:
        raise ExperimentError(f"{option} is missing; give the folder with {what}")
    if not path.is_dir():
        raise ExperimentError(f"{option} {path} is no folder; give the one with {what}")
    return path
