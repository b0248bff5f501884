"""What the commands do, once their options are read."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import interpress
from interpress.budgets.budget import Budget
from interpress.cli.inputs import Source
from interpress.cli.loading import checked_device, load_model
from interpress.data.calibration_set import CalibrationSet
from interpress.errors import ArgumentError, DataError, InterpressError, StorageError
from interpress.evaluation.tally import Agreement
from interpress.storage.result_folder import PAGE, checked_target


def inspect(
    name: str,
    arguments: list[str] | None,
    weights: Path | None,
    device: str,
    source: Source | None,
    shape: str | None,
    exclude: list[str] | None,
    as_json: bool,
) -> None:
    """Print the channel spaces of a network."""
    if (source is None) == (shape is None):
        raise ArgumentError("give one of --data and --shape, so that the network can be run")
    example = _of_shape(shape, device) if shape is not None else None
    with _aside(as_json):
        model = load_model(name, arguments, weights, device, judged=False)
        if source is not None:
            example = CalibrationSet(source.open(), model).first()
        spaces = interpress.find_spaces(model, example, exclude=exclude or ())
    if not as_json:
        print(spaces)
        return
    cost = spaces.cost()
    _print_json(
        {
            "flops": cost.flops,
            "parameters": cost.parameters,
            "spaces": [
                {
                    "name": space.name, "size": space.size, "step": space.step,
                    "producers": space.producers, "consumers": space.consumers,
                    "frozen": space.frozen,
                }
                for space in spaces
            ],
        }
    )  # fmt: skip


def _of_shape(text: str, device: str) -> Any:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ArgumentError(f"--shape {text!r}; give whole numbers, as in 3,32,32") from error
    if not sizes or min(sizes) < 1:
        raise ArgumentError(f"--shape {text!r}; every size must be at least 1")
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, *sizes, generator=generator).to(checked_device(device))


def compress(
    name: str,
    arguments: list[str] | None,
    weights: Path | None,
    device: str,
    source: Source,
    evaluation: Source | None,
    budgets: dict[str, float | None],
    options: dict[str, Any],
    out: Path,
    force: bool,
    as_json: bool,
) -> None:
    """Compress a network and write the folder."""
    Budget.of(budgets)
    checked_target(out, force, "pass --force")
    with _aside(as_json):
        model = load_model(name, arguments, weights, device)
        data = source.open()
        given = None
        if evaluation is not None:
            given = _with_labels(evaluation.open())
            first = next(iter(given))
            _compared(model, model, [first], None, evaluation.path)  # before the long part
        asked: dict[str, Any] = {**budgets, **options}
        result = interpress.compress(model, data, **asked)
        result.save(out, overwrite=force, report=True, evaluation=given)
    if as_json:
        held = result.agreement
        _print_json(
            {
                "folder": str(out), "report": str(out / PAGE), "flops": result.flops,
                "params": result.params, "latency": result.latency,
                "agreement": None if held is None else _plain(held),
                "widths": dict(result.widths),
            }
        )  # fmt: skip
        return
    try:
        print(result.summary())
        print(f"Saved to {out}; the page to look at is {out / PAGE}", flush=True)
    except OSError as error:
        raise StorageError(
            f"the result is in {out}, but standard output cannot be written ({error.strerror})"
        ) from error


def _compared(first: nn.Module, second: nn.Module, data: Any, labels: Any, path: Path) -> Agreement:
    """Agreement, or a word about data that do not fit."""
    try:
        return interpress.agreement(first, second, data, labels=labels)
    except InterpressError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise DataError(
            f"the network cannot run on {path} ({str(error).splitlines()[0]}); prepare it as the "
            "network expects: --size, --gray, --key, --length"
        ) from error


def _aside(as_json: bool) -> contextlib.AbstractContextManager[Any]:
    """What a model prints goes elsewhere, where standard output is for a machine."""
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()


def _with_labels(data: Any) -> Any:
    """Batches as (inputs, labels), where labels are known and inputs are one tensor."""
    labels = data.labels()
    if labels is None:
        return data
    pairs, start = [], 0
    for batch in data:
        size = len(next(iter(batch.values())) if isinstance(batch, dict) else batch)
        own = labels[start : start + size]
        pairs.append({**batch, "labels": own} if isinstance(batch, dict) else (batch, own))
        start += size
    return pairs


def evaluate(
    name: str,
    arguments: list[str] | None,
    weights: Path | None,
    device: str,
    source: Source,
    compressed: Path | None,
    other: str | None,
    other_weights: Path | None,
    as_json: bool,
) -> None:
    """Compare two networks on the same data."""
    if (compressed is None) == (other is None):
        raise ArgumentError("give one of --compressed FOLDER and --other MODEL to compare with")
    if other is None and other_weights is not None:
        raise ArgumentError("--other-weights belongs to --other; leave it out")
    with _aside(as_json):
        first = load_model(name, arguments, weights, device)
        second: nn.Module
        if compressed is not None:
            second = interpress.load(compressed, first)
        else:
            assert other is not None
            second = load_model(other, arguments, other_weights, device)
        data = source.open()
        found = _compared(first, second, data, data.labels(), source.path)
    if as_json:
        _print_json(_plain(found))
        return
    print(found)
    if found.accuracy is not None:
        print(f"accuracy {found.accuracy[0]:.2%} and {found.accuracy[1]:.2%}")
    if found.per_class:
        _print_table(
            ("class", "examples", "agreement"),
            [(str(r.label), f"{r.count:,}", f"{r.agreement:.2%}") for r in found.per_class],
        )


def curve(
    name: str,
    arguments: list[str] | None,
    weights: Path | None,
    device: str,
    source: Source,
    points: int,
    measure: bool,
    method: str,
    exclude: list[str],
    seed: int,
    as_json: bool,
) -> None:
    """Print the trade-off."""
    rows: list[dict[str, Any]] = []
    with _aside(as_json):
        model = load_model(name, arguments, weights, device)
        analysis = interpress.analyze(model, source.open(), exclude=exclude, seed=seed)
        for point in analysis.curve(method=method, points=points):
            row: dict[str, Any] = {"flops": point.flops, "params": point.params, "loss": point.loss}
            if measure:
                result = analysis.compress(flops=min(1.0, point.flops + 1e-9), method=method)
                row["agreement"] = None if result.agreement is None else _plain(result.agreement)
            rows.append(row)
    if as_json:
        _print_json({"method": method, "points": rows})
        return
    columns = ("FLOPs left", "parameters left", "predicted loss") + ("agreement",) * measure
    lines = []
    for row in rows:
        line = [f"{row['flops']:.1%}", f"{row['params']:.1%}", f"{row['loss']:.4f}"]
        if measure:
            held = row["agreement"]
            line.append(
                "" if held is None or held["agreement"] is None else f"{held['agreement']:.2%}"
            )
        lines.append(tuple(line))
    _print_table(columns, lines)


def _print_table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    table = Table()
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    Console(width=80).print(table)


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, indent=1))


def _plain(found: Agreement) -> dict[str, Any]:
    return {
        "agreement": found.agreement,
        "interval": found.interval,
        "decisions": found.decisions,
        "examples": found.examples,
        "divergence": found.divergence,
        "output_error": found.output_error,
        "accuracy": found.accuracy,
        "flips": [flip.index for flip in found.flips],
    }
