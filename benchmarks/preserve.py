"""What compression preserves, what it costs, and what each part bought, on CIFAR-10.

    python -m benchmarks.preserve agreement --data DIR --weights DIR [--device cuda]
    python -m benchmarks.preserve parts     --data DIR --weights DIR [--device cuda]
    python -m benchmarks.preserve cost      --data DIR --weights DIR
    python -m benchmarks.preserve loop      --data DIR --weights DIR
    python -m benchmarks.preserve memory    --data DIR --weights DIR
    python -m benchmarks.preserve latency   --data DIR --weights DIR [--device cuda]
    python -m benchmarks.preserve budgets   --data DIR --weights DIR [--device cuda]

`--data` holds `test.parquet` and `train.parquet` (columns `img` with image bytes, and `label`),
`--weights` holds `<network>-cifar10.safetensors`. The split is the paper's: 1,000 random test
images calibrate, unlabelled, the other 9,000 test; the seed draws them. Writes
`benchmarks/results/preserve-<part>-<device>.json` and `.md`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from interpress.method import METHODS
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import track
from torch import Tensor, nn

import interpress
import interpress.api
from benchmarks.data.cifar import Images, load_cifar
from benchmarks.experiment import RESULTS, machine
from benchmarks.networks import NETWORKS, load_network
from benchmarks.subjects import STREAMS
from interpress.evaluation.latency import latency_ratio
from interpress.graph.example import Example

Row = dict[str, Any]
PARTS: dict[str, dict[str, Any]] = {
    "pivoting, constant": {"method": "constant-id"},
    "pivoting, iterative": {"method": "iterative-id"},
    "weights, marginal": {"selection": "weights", "allocation": "marginal", "refit": False},
    "patches, marginal": {"selection": "patches", "allocation": "marginal", "refit": False},
    "patches, measured": {"refit": False},
    "pivoting, iterative + refit": {"method": "iterative-id", "refit": True},
    "weights, marginal + refit": {"selection": "weights", "allocation": "marginal"},
    "patches, marginal + refit": {"allocation": "marginal"},
    "patches, measured + refit": {},
}


class Task:
    """The networks and images of one run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device = options.device
        self.test = load_cifar(options.data, "test")
        self.networks: list[str] = options.networks
        self.seeds = range(options.seeds)
        self.budgets: list[float] = options.flops

    def network(self, name: str) -> nn.Module:
        """A trained network."""
        return load_network(name, self.options.weights, self.device)

    def split(self, seed: int, source: str = "test") -> tuple[Tensor, Images]:
        """Images to calibrate on, without labels, and images to judge by."""
        order = torch.randperm(len(self.test.images), generator=_generator(seed))
        calibrating = order[: self.options.images]
        judging = self.test.take(order[self.options.images :])
        if source == "test":
            return self.test.images[calibrating], judging
        train = load_cifar(self.options.data, "train", self.options.train_limit)
        own = torch.randperm(len(train.images), generator=_generator(seed))
        return train.images[own[: self.options.images]], judging


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _agreement(model: nn.Module, result: interpress.Result, judging: Images) -> Row:
    found = interpress.agreement(model, result.model, tuple(judging))
    assert found.accuracy is not None
    assert found.agreement is not None
    held = result.agreement
    return {
        "flops": result.flops,
        "agreement": 100 * found.agreement,
        "divergence": found.divergence,
        "accuracy": [100 * value for value in found.accuracy],
        "held": None if held is None else [100 * float(held), held.divergence],
        "warned": False,
    }


def agreement(task: Task) -> Iterator[Row]:
    """The three methods on three networks, calibrated on test and on training images."""
    jobs = [(n, s, c) for n in task.networks for s in task.seeds for c in task.options.calibrate]
    for name, seed, source in track(jobs, "agreement", console=Console(stderr=True)):
        calibration, judging = task.split(seed, source)
        model = task.network(name)
        wanted = [("preserve", budget) for budget in task.budgets]
        if source == "test":  # the paper's methods at the first budget
            wanted += [(method, task.budgets[0]) for method in METHODS if method != "preserve"]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", interpress.MemorizedWarning)
            whole = interpress.analyze(model, calibration, seed=seed)
            inner = whole
            if name in STREAMS and source == "test":  # the paper's methods know no residual streams
                inner = interpress.analyze(
                    model, calibration, seed=seed, patches=False, exclude=STREAMS[name]
                )
            for method, budget in wanted:
                analysis = whole if method == "preserve" else inner
                row = _agreement(model, analysis.compress(flops=budget, method=method), judging)
                row["warned"] = bool(caught)
                about = {"network": name, "seed": seed, "calibration": source}
                yield {**about, "method": method, "asked": budget, **row}


def parts(task: Task) -> Iterator[Row]:
    """What each part of the method is worth."""
    jobs = [(n, s) for n in task.networks for s in task.seeds]
    for name, seed in track(jobs, "parts", console=Console(stderr=True)):
        calibration, judging = task.split(seed)
        model = task.network(name)
        analysis = interpress.analyze(model, calibration, seed=seed)
        for label, chosen in PARTS.items():
            for budget in task.budgets:
                result = analysis.compress(flops=budget, **chosen)
                row = _agreement(model, result, judging)
                about = {"network": name, "seed": seed, "method": label, "asked": budget}
                yield {**about, **row}


def cost(task: Task) -> Iterator[Row]:
    """Times as multiples of one plain forward pass over the calibration set, in one run.

    Medians of repeats that take turns. Finding the channel spaces depends on the network alone, not
    on the data; it has a column and is left out of the others.
    """
    for name in task.networks:
        yield _costs(task, name)


def _costs(task: Task, name: str) -> Row:
    calibration, _ = task.split(0)
    model = task.network(name)
    few = calibration[:100].to(task.device)
    _forward(model, calibration[:200], few)
    interpress.find_spaces(model, few[:4])  # the first time, torch.export loads itself
    methods = ("constant-id", "iterative-id", "preserve")
    times: dict[str, list[float]] = {key: [] for key in ("forward", "finding", "all", *methods)}
    for _ in range(task.options.repeats):
        times["forward"].append(_seconds(lambda: _forward(model, calibration, few)))
        for method in methods:
            with _clocked(interpress.api, "find_spaces") as finding:
                options: Row = {"flops": 0.5, "method": method}
                whole = _seconds(partial(interpress.compress, model, calibration, **options))
            times["finding"] += finding
            times[method].append(whole - sum(finding))
        times["all"].append(whole)
    typical = {key: statistics.median(values) for key, values in times.items()}
    forward, in_all = typical.pop("forward"), typical.pop("all")
    multiples = {key: seconds / forward for key, seconds in typical.items()}
    return {"network": name, "forward": forward, **multiples, "seconds in all": in_all}


@contextlib.contextmanager
def _clocked(module: ModuleType, name: str) -> Iterator[list[float]]:
    """The seconds of every call of a function that another module calls."""
    real, found = getattr(module, name), list[float]()

    def timed(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return real(*args, **kwargs)
        finally:
            found.append(time.perf_counter() - started)

    setattr(module, name, timed)
    try:
        yield found
    finally:
        setattr(module, name, real)


def _forward(model: nn.Module, calibration: Tensor, few: Tensor) -> None:
    with torch.no_grad():
        for batch in calibration.to(few.device).split(100):
            model(batch)


def loop(task: Task) -> Iterator[Row]:
    """The literal loop of Algorithm 2 beside the one-pass form, at 10 % steps, in one run."""
    for name in task.networks:
        calibration, judging = task.split(0)
        model = task.network(name)
        spaces = STREAMS.get(name, ())
        row: Row = {"network": name}
        for label, literal in (("one pass", False), ("literal loop", True)):
            started = time.perf_counter()
            analysis = interpress.analyze(model, calibration, patches=False, exclude=spaces)
            result = analysis.compress(
                flops=0.5, method="iterative-id", step=0.1, recompute=literal
            )
            row[f"{label}, s"] = time.perf_counter() - started
            whole = interpress.agreement(model, result.model, judging.images)
            row[f"{label}, agreement"] = 100 * float(whole)
        yield row | {"times faster": row["literal loop, s"] / row["one pass, s"]}


def memory(task: Task) -> Iterator[Row]:
    """Peak memory beyond what the process held before, for 1,000 and 10,000 images."""
    for name in task.networks:
        row: Row = {"network": name}
        for images in (1000, 10_000):
            command = [sys.executable, "-m", "benchmarks.preserve", "peak", "--images", str(images)]
            command += ["--data", str(task.options.data), "--weights", str(task.options.weights)]
            output = subprocess.run(
                [*command, "--networks", name], check=True, capture_output=True, text=True
            )
            row[str(images)] = json.loads(output.stdout.splitlines()[-1])
        yield row


def peak(task: Task) -> Iterator[Row]:
    """Internal: one compression in a process of its own; prints megabytes."""
    (name,) = task.networks
    model = task.network(name)
    calibration = task.test.images[: task.options.images]
    with torch.no_grad():
        model(calibration[:100])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    interpress.compress(model, calibration, flops=0.5)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print((after - before) / 1024)
    yield from ()


def latency(task: Task) -> Iterator[Row]:
    """Measured time beside counted FLOPs, with and without rounding widths."""
    for name in task.networks:
        calibration, judging = task.split(0)
        model = task.network(name)
        analysis = interpress.analyze(model, calibration)
        example = Example((task.test.images[: task.options.batch].to(task.device),))
        for round_to in (1, 8, 16):
            result = analysis.compress(flops=0.5, round_to=round_to)
            ratio = statistics.median(latency_ratio(result.model, model, example) for _ in range(3))
            row = _agreement(model, result, judging)
            about = {"network": name, "batch": task.options.batch, "round_to": round_to}
            about["latency"] = ratio
            yield {**about, "flops": row["flops"], "agreement": row["agreement"]}


def budgets(task: Task) -> Iterator[Row]:
    """Every kind of budget: what was asked, what came out."""
    asked: list[dict[str, float]] = [
        {"flops": 0.5}, {"flops": 0.3}, {"params": 0.5}, {"latency": 0.8}, {"agreement": 0.98},
        {"error": 0.2}, {"width": 0.7},
    ]  # fmt: skip
    for name in task.networks:
        calibration, judging = task.split(0)
        model = task.network(name)
        analysis = interpress.analyze(model, calibration)
        for one in track(asked, name, console=Console(stderr=True)):
            result = analysis.compress(**one)  # type: ignore[arg-type]
            row = _agreement(model, result, judging)
            ((kind, value),) = one.items()
            about = {"network": name, "budget": kind, "asked": value, "params": result.params}
            yield {**about, "latency": result.latency, **row}


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _spread(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def markdown(part: str, report: Row) -> str:
    """The table of one part."""
    rows = report["rows"]
    if part in ("agreement", "parts"):
        return _agreement_table(rows)
    lines = []
    for index, row in enumerate(rows):
        flat = _flat(row)
        if index == 0:
            lines += ["| " + " | ".join(flat) + " |", "|" + "---|" * len(flat)]
        lines.append("| " + " | ".join(flat.values()) + " |")
    return "\n".join(lines) + "\n"


def _flat(row: Row, prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}: ")
        elif isinstance(value, float):
            found[prefix + key] = f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
        elif not isinstance(value, list | bool):
            found[prefix + key] = "" if value is None else str(value)
    return found


def _agreement_table(rows: list[Row]) -> str:
    networks = list(dict.fromkeys(row["network"] for row in rows))
    lines = [
        f"| FLOPs left | method | {' | '.join(networks)} |",
        "|---" * (2 + len(networks)) + "|",
    ]
    keys = dict.fromkeys((r["asked"], r["method"], r.get("calibration", "test")) for r in rows)
    for asked, method, source in sorted(keys, key=lambda key: -key[0]):
        cells = []
        for network in networks:
            own = [
                r["agreement"] for r in rows
                if (r["asked"], r["method"], r.get("calibration", "test"), r["network"])
                == (asked, method, source, network)
            ]  # fmt: skip
            cells.append(_spread(own) if own else "")
        label = method if source == "test" else f"{method}, training images"
        lines.append(f"| {asked:g} | {label} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Run one part and write its files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds: dict[str, Callable[[Task], Iterator[Row]]] = {
        f.__name__: f for f in (agreement, parts, cost, loop, memory, peak, latency, budgets)
    }
    parser.add_argument("part", choices=kinds)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--flops", nargs="+", type=float, default=[0.5, 0.3])
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--calibrate", nargs="+", default=["test", "train"], metavar="PART")
    parser.add_argument("--train-limit", type=int, default=None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=100, help="latency: images at once")
    parser.add_argument("--suffix", default="", help="appended to the names of the result files")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    report: Row = {
        "machine": machine(torch.device(options.device)),
        "data": "CIFAR-10 (JPEG)",
        "images": options.images,
        "rows": [],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    stem = f"preserve-{options.part}-{torch.device(options.device).type}{options.suffix}"
    for row in kinds[options.part](Task(options)):  # written as it goes, so that nothing is lost
        report["rows"].append(row)
        (options.out / f"{stem}.json").write_text(json.dumps(report, indent=1) + "\n")
        (options.out / f"{stem}.md").write_text(markdown(options.part, report))
    if report["rows"]:
        Console(width=100).print(Markdown(markdown(options.part, report)))


if __name__ == "__main__":
    main()
