"""Run time and memory of compression, and run time of the compressed networks."""

from __future__ import annotations

import contextlib
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

import interpress
import interpress.api
from benchmarks.experiment import Row
from benchmarks.preserve.task import Task, score
from benchmarks.subjects import RESIDUAL_STREAMS
from interpress import Method
from interpress.evaluation.latency import latency_ratio
from interpress.graph.example import Example

COST_METHODS = ("constant-id", "iterative-id", "preserve")
MEMORY_IMAGES = (1000, 10_000)
_FORWARD_BATCH = 100


def cost(task: Task) -> Iterator[Row]:
    """Measure run times as multiples of one forward pass over the calibration set.

    They are medians of repeats in which all methods alternate. Finding the channel spaces depends
    only on the network. It has its own column and is not part of the others.
    """
    for name in task.networks:
        yield _cost_of(task, name)


def _cost_of(task: Task, name: str) -> Row:
    calibration, _ = task.split(0)
    model = task.network(name)
    _forward(model, calibration[:200])  # warm up
    interpress.find_spaces(model, calibration[:4].to(task.device))  # the first call loads modules
    times: dict[str, list[float]] = {
        key: [] for key in ("forward", "finding", "all", *COST_METHODS)
    }
    for _ in range(task.options.repeats):
        times["forward"].append(_seconds(partial(_forward, model, calibration)))
        for method in COST_METHODS:
            compress = partial(interpress.compress, model, calibration, flops=0.5, method=method)
            with _time_calls(interpress.api, "find") as finding:
                total = _seconds(compress)
            times["finding"] += finding
            times[method].append(total - sum(finding))
        times["all"].append(total)
    medians = {key: statistics.median(values) for key, values in times.items()}
    forward, total = medians.pop("forward"), medians.pop("all")
    multiples = {key: seconds / forward for key, seconds in medians.items()}
    return {"network": name, "forward": forward, **multiples, "seconds in all": total}


def _forward(model: nn.Module, images: Tensor) -> None:
    device = next(model.parameters()).device
    with torch.no_grad():
        for batch in images.to(device).split(_FORWARD_BATCH):
            model(batch)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@contextlib.contextmanager
def _time_calls(module: ModuleType, name: str) -> Iterator[list[float]]:
    """Yield a list that collects the seconds of every call of a module's function."""
    function, seconds = getattr(module, name), list[float]()

    def timed(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            seconds.append(time.perf_counter() - started)

    setattr(module, name, timed)
    try:
        yield seconds
    finally:
        setattr(module, name, function)


def loop(task: Task) -> Iterator[Row]:
    """Compare the one-pass form of Algorithm 2 with the literal loop, in steps of 10 %."""
    for name in task.networks:
        calibration, testing = task.split(0)
        model = task.network(name)
        row: Row = {"network": name}
        for label, literal in (("one pass", False), ("literal loop", True)):
            started = time.perf_counter()
            analysis = interpress.analyze(
                model, calibration, patches=False, exclude=RESIDUAL_STREAMS.get(name, ())
            )
            method = Method.named("iterative-id", step=0.1, recompute=literal)
            result = analysis.compress(flops=0.5, method=method)
            row[f"{label}, s"] = time.perf_counter() - started
            agreement = interpress.agreement(model, result.model, testing.images)
            row[f"{label}, agreement"] = 100 * float(agreement)
        yield row | {"times faster": row["literal loop, s"] / row["one pass, s"]}


def latency(task: Task) -> Iterator[Row]:
    """Measure the run time of compressed networks, with and without rounded widths."""
    for name in task.networks:
        calibration, testing = task.split(0)
        model = task.network(name)
        analysis = interpress.analyze(model, calibration)
        batch = task.options.batch
        example = Example((task.test.images[:batch].to(task.device),))
        for round_to in (1, 8, 16):
            result = analysis.compress(flops=0.5, round_to=round_to)
            ratio = statistics.median(latency_ratio(result.model, model, example) for _ in range(3))
            row = score(model, result, testing)
            about = {"network": name, "batch": batch, "round_to": round_to, "latency": ratio}
            yield {**about, "flops": row["flops"], "agreement": row["agreement"]}


def memory(task: Task) -> Iterator[Row]:
    """Measure the peak memory of a compression in MiB, relative to the memory before it."""
    for name in task.networks:
        row: Row = {"network": name}
        for images in MEMORY_IMAGES:
            # A new process each time: the peak of a process never falls.
            command = [sys.executable, "-m", "benchmarks.preserve", "peak", "--images", str(images)]
            command += ["--data", str(task.options.data), "--weights", str(task.options.weights)]
            output = subprocess.run(
                [*command, "--networks", name], check=True, capture_output=True, text=True
            )
            row[str(images)] = json.loads(output.stdout.splitlines()[-1])
        yield row


def peak(task: Task) -> Iterator[Row]:
    """Print the peak memory of one compression; `memory` runs this in a separate process."""
    (name,) = task.networks
    model = task.network(name)
    calibration = task.test.images[: task.options.images]
    _forward(model, calibration[:_FORWARD_BATCH])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    interpress.compress(model, calibration, flops=0.5)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print((after - before) / 1024)
    yield from ()
