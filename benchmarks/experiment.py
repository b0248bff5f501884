"""The parts of an experiment: its settings, its jobs, and the report that holds its rows.

An experiment is a module in `benchmarks.experiments` with

    ABOUT                      one line for `--help`
    jobs(settings)             an iterable of `Job`
    tables(report)             Markdown, made from the rows only
    draw(report, folder)       plots, made from the rows only (optional)

Rows are plain JSON. `benchmarks.runner` runs the jobs.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from rich.progress import Progress

import benchmarks.experiments

RESULTS = Path(__file__).parent / "results"
QUICK_RESULTS = Path("build") / "quick"
Row = dict[str, Any]
Item = TypeVar("Item")


class ExperimentError(SystemExit):
    """A problem that the user has to fix; it is shown without a traceback."""


@dataclass(frozen=True)
class Job:
    """One piece of work; its rows are stored under its key."""

    key: str
    work: Callable[[], list[Row]]


@dataclass(eq=False)
class Settings:
    """The command-line options of an experiment."""

    data: Path | None = None
    weights: Path | None = None
    device: str = "cpu"
    quick: bool = False
    seeds: int | None = None
    only: str = ""
    bars: Progress | None = field(default=None, repr=False)

    def folder(self, name: str) -> Path | None:
        """Return the folder of a data set: `--data/name` if it exists, else `--data`."""
        if self.data is None:
            return None
        return self.data / name if (self.data / name).is_dir() else self.data

    def choose(self, full: int, quick: int) -> int:
        """Return `quick` for a run with `--quick`, else `full`."""
        return quick if self.quick else full

    def seed_range(self, full: int, quick: int = 1) -> range:
        """Return the seeds to run; `--seeds` overrides their number."""
        return range(self.seeds or self.choose(full, quick))

    def track(self, items: Sequence[Item], label: str) -> Iterator[Item]:
        """Yield the items and show their progress."""
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
    """The rows of an experiment and the runs that produced them; stored as one JSON file."""

    about: Row
    """The experiment's name, its options, and one entry per run."""
    rows: dict[str, list[Row]]
    """Per job key, the rows of that job."""

    @property
    def all_rows(self) -> list[Row]:
        """The rows of all jobs."""
        return [row for rows in self.rows.values() for row in rows]

    def where(self, **values: Any) -> list[Row]:
        """Return the rows that have these values."""
        return [
            row
            for row in self.all_rows
            if all(row.get(key) == value for key, value in values.items())
        ]

    def distinct(self, key: str, **values: Any) -> list[Any]:
        """Return the values of one key in the matching rows, each once, in order of appearance."""
        return list(dict.fromkeys(row[key] for row in self.where(**values) if key in row))

    @classmethod
    def load(cls, path: Path) -> Report:
        """Read a report from its file."""
        stored = json.loads(path.read_text())
        return cls(stored["about"], stored["rows"])

    def save(self, path: Path) -> None:
        """Write the report atomically, so that an interrupted run loses at most one job."""
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps({"about": self.about, "rows": self.rows}, indent=1) + "\n")
        os.replace(temporary, path)


def experiments() -> dict[str, ModuleType]:
    """Return all experiments by name."""
    modules = pkgutil.iter_modules(benchmarks.experiments.__path__)
    return {
        module.name: importlib.import_module(f"benchmarks.experiments.{module.name}")
        for module in modules
    }


def require_folder(path: Path | None, option: str, content: str) -> Path:
    """Return the folder that a command-line option names, or raise if there is none."""
    if path is None:
        raise ExperimentError(f"{option} is missing; give the folder with {content}")
    if not path.is_dir():
        raise ExperimentError(f"{option} {path} is not a folder; give the folder with {content}")
    return path
