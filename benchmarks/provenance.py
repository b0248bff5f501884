"""Where results come from: command, date, machine, versions and weights."""

from __future__ import annotations

import hashlib
import platform
import time
from pathlib import Path

import torch

import interpress
from benchmarks.experiment import Report, Row, Settings


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
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine_name(torch.device(settings.device)),
        "torch": torch.__version__.split("+")[0],
        "python": platform.python_version(),
        "interpress": interpress.__version__,
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
        circumstances = f"{run['date']}, {run['machine']}, torch {run['torch']}"
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
