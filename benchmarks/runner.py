"""Run the jobs of an experiment, and write its report, tables and plots.

The report is saved after every job. A job whose key is in the report already is not run again, so
an interrupted experiment continues where it stopped.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import ModuleType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.experiment import ExperimentError, Job, Report, Row, Settings
from benchmarks.provenance import describe_run, heading, set_aside, weight_digests


def run(name: str, module: ModuleType, settings: Settings, out: Path, fresh: bool) -> Report:
    """Run the jobs that have no rows yet, then write tables and plots; return the report."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.json"
    set_aside(path)
    report, run_entry = _resume(path, name, settings, fresh)
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bars:
        settings.bars = bars
        jobs = _selected_jobs(name, module, settings)
        task = bars.add_task(name, total=len(jobs))
        for job in jobs:
            if job.key not in report.rows:
                started = time.perf_counter()
                report.rows[job.key] = job.work()
                elapsed = time.perf_counter() - started
                run_entry["seconds"] = round(run_entry["seconds"] + elapsed, 1)
                report.save(path)
            bars.advance(task)
    settings.bars = None
    publish(name, module, report, out)
    return report


def publish(name: str, module: ModuleType, report: Report, out: Path) -> None:
    """Write the tables and plots of a report."""
    (out / f"{name}.md").write_text(markdown(module, report))
    if hasattr(module, "draw"):
        _draw(name, module, report, out)


def markdown(module: ModuleType, report: Report) -> str:
    """Return the text of an experiment's `.md` file: its runs and its tables."""
    return heading(report) + "\n" + str(module.tables(report))


def _draw(name: str, module: ModuleType, report: Report, out: Path) -> None:
    console = Console(stderr=True)
    try:
        import matplotlib as mpl
    except ImportError:
        console.print("no plots: install matplotlib, then run again with --redraw")
        return
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = name  # the same rows give the same file
    try:
        module.draw(report, out)
    except (IndexError, KeyError, StopIteration, ZeroDivisionError) as problem:
        console.print(f"no plots of {name}: some of their jobs have not run yet ({problem!r})")


def _selected_jobs(name: str, module: ModuleType, settings: Settings) -> list[Job]:
    jobs = list(module.jobs(settings))
    selected = [job for job in jobs if settings.only in job.key]
    if not selected:
        raise ExperimentError(
            f"no job of {name} has {settings.only!r} in its key; keys are, for example, "
            f"{', '.join(job.key for job in jobs[:3])}"
        )
    return selected


def _resume(path: Path, name: str, settings: Settings, fresh: bool) -> tuple[Report, Row]:
    """Return the report so far, and the entry of this run in it."""
    options = {
        "quick": settings.quick,
        "data": settings.data is not None,
        "weights": weight_digests(settings.weights),
    }
    run_entry = describe_run(name, settings)
    if fresh or not path.is_file():
        return Report({"experiment": name, "options": options, "runs": [run_entry]}, {}), run_entry
    report = Report.load(path)
    if report.about["options"] != options:
        raise ExperimentError(
            f"{path} has results of `{report.about['runs'][0]['command']}`, which were made with "
            f"other options or weights than `{run_entry['command']}`; write to another folder with "
            "--out, or start over with --fresh"
        )
    for earlier in report.about["runs"]:
        if {**earlier, "seconds": 0.0} == run_entry:
            return report, earlier
    report.about["runs"].append(run_entry)
    return report, run_entry
