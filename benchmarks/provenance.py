"""Where results come from: command, date, machine, versions, code and weights.

A result file never mixes versions of interpress. Before a newer version writes to a file,
`set_aside` moves the older file to `older/VERSION/`. The pages show both, each with its version.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import time
from pathlib import Path

import torch

import interpress
from benchmarks.experiment import Report, Row, Settings

_SOURCES = Path(interpress.__file__).parent
_SHOWING = {"assets", "cli", "report", "storage", "demo.py", "__main__.py", "_version.py"}
"""Modules that show or store results. Figures do not depend on them."""
_MEASURED = {
    "linalg": {"linalg"},
    "coverage": {"graph", "labels", "ops", "spaces", "surgery", "dryrun", "linalg"},
}
"""Per kind of result file, the packages that it measures, if these are not nearly all of them."""


def code_hash(result: str) -> str:
    """Return a short hash of the modules on which the figures of a result file depend.

    `result` is the name of the file, such as "linalg-cpu". A change of any byte changes the hash.
    """
    measured = _MEASURED.get(result.partition("-")[0])
    digest = hashlib.sha256()
    for path in sorted(_SOURCES.rglob("*.py")):
        part = path.relative_to(_SOURCES).parts[0]
        if part in measured if measured else part not in _SHOWING:
            digest.update(path.relative_to(_SOURCES).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def commit() -> str | None:
    """Return the commit of the checkout, with "+" if files were changed; None outside of one."""
    try:
        words = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
        done = subprocess.run(
            words, cwd=_SOURCES, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def stamp(result: str, device: torch.device) -> Row:
    """Return what every result file records of the run that wrote it."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine_name(device),
        "torch": torch.__version__.split("+")[0],
        "python": platform.python_version(),
        "interpress": interpress.__version__,
        "commit": commit(),
        "code": code_hash(result),
    }


def versions_of(path: Path) -> list[str]:
    """Return the versions of interpress that a result file records."""
    stored = json.loads(path.read_text())
    if isinstance(stored, list):
        return sorted({row["version"] for row in stored})
    runs = stored["about"]["runs"] if "about" in stored else [stored]
    return sorted({run["interpress"] for run in runs})


def set_aside(path: Path) -> None:
    """Move a result file of an older version, its tables and its plots to `older/VERSION/`."""
    if not path.is_file() or versions_of(path) == [interpress.__version__]:
        return
    folder = path.parent / "older" / versions_of(path)[-1]
    folder.mkdir(parents=True, exist_ok=True)
    files = [path, path.with_suffix(".md"), *path.parent.glob(f"{path.stem}*.svg")]
    for file in files:
        if file.is_file():
            os.replace(file, folder / file.name)


def machine_name(device: torch.device) -> str:
    """Return the name of the GPU, or the number of cores and the type of the CPU."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    model = platform.processor() or platform.machine()
    return f"a {torch.get_num_threads()}-core {model} CPU"


def describe_run(name: str, settings: Settings) -> Row:
    """Return the entry of a run in its report; `seconds` counts up while it runs."""
    options = [f"python -m benchmarks {name}"]
    options += ["--data DIR"] if settings.data else []
    options += ["--weights DIR"] if settings.weights else []
    options += [f"--device {settings.device}"] if settings.device != "cpu" else []
    options += [f"--seeds {settings.seeds}"] if settings.seeds else []
    options += [f"--only {settings.only}"] if settings.only else []
    options += ["--quick"] if settings.quick else []
    return {
        "command": " ".join(options),
        **stamp(name, torch.device(settings.device)),
        "seconds": 0.0,
    }


def command_of(report: Row) -> str:
    """Return the command of a report as `python -m benchmarks NAME`; old files name the module."""
    return str(report["command"]).replace("-m benchmarks.", "-m benchmarks ")


def heading(report: Report) -> str:
    """Return a Markdown list of the runs; runs that differ only in `--only` share an entry."""
    seconds_by_run: dict[tuple[str, str], dict[str, float]] = {}
    for run in report.about["runs"]:
        command, option, part = run["command"].partition(" --only ")
        circumstances = (
            f"interpress {run['interpress']}, {run['date']}, {run['machine']}, torch {run['torch']}"
        )
        seconds_by_run.setdefault((command + option, circumstances), {})[part] = run["seconds"]
    lines = []
    for (command, circumstances), seconds in seconds_by_run.items():
        if len(seconds) == 1:
            ((part, duration),) = seconds.items()
            lines.append(f"- `{command}{part}` ({circumstances}; {duration:.0f} s)")
            continue
        parts = ", ".join(f"`{part}` ({duration:.0f} s)" for part, duration in seconds.items())
        lines.append(f"- `{command}PART` ({circumstances}), where PART is {parts}")
    return "\n".join(lines) + "\n"


def weight_digests(folder: Path | None) -> dict[str, str]:
    """Return a short hash of every file of trained weights in a folder."""
    if folder is None or not folder.is_dir():
        return {}
    files = sorted(folder.glob("*.safetensors"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:12] for file in files}
