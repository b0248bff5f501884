"""What the commands do with their options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import interpress
from interpress.allocation.curve import Point
from interpress.budgets.budget import Budget
from interpress.cli.comparing import compare, evaluation_batches
from interpress.cli.compress_options import CompressOptions
from interpress.cli.data_files.batches import open_batches
from interpress.cli.data_options import DataOptions
from interpress.cli.earlier_result import load_earlier
from interpress.cli.loading import checked_device, load_model
from interpress.cli.method_options import MethodOptions
from interpress.cli.model_options import ModelOptions
from interpress.cli.output_options import OutputOptions
from interpress.cli.printing import agreement_record, model_output_aside, print_json, print_table
from interpress.cli.timm_models import PREFIX, add_pruned
from interpress.data.calibration_set import CalibrationSet
from interpress.data.part import Part
from interpress.distillation.options import MINUTES
from interpress.errors import ArgumentError, StorageError
from interpress.evaluation.tally import Agreement
from interpress.parallel.processes import process_group
from interpress.spaces.batching import captured_examples
from interpress.storage.result_folder import PAGE, checked_target, part_of


def inspect(
    model: ModelOptions,
    data: DataOptions | None,
    shape: str | None,
    exclude: list[str],
    part: str | None,
    as_json: bool,
) -> None:
    """Print the channel spaces of a network."""
    if (data is None) == (shape is None):
        raise ArgumentError("give one of --data and --shape, so that the network can be run")
    example: Any = None if shape is None else _random_batch(shape, model.device)
    with model_output_aside(as_json):
        network = load_model(model, warn_if_untrained=False)
        batches: Any = [example] if data is None else open_batches(data, model, network)
        if part is not None:
            inside = Part(network, part)
            network = inside.module
            example = CalibrationSet(batches, network, forward=inside.forward).first()
        elif data is not None:
            example = CalibrationSet(batches, network).first()
        spaces = interpress.find_spaces(network, example, exclude=exclude)
    if not as_json:
        print(spaces)
        return
    cost = spaces.cost()
    examples = captured_examples(spaces)
    print_json(
        {
            "flops": cost.flops // examples,
            "parameters": cost.parameters,
            "spaces": [
                {
                    "name": space.name, "size": space.size, "step": space.step,
                    "producers": space.producers, "consumers": space.consumers,
                    "frozen": space.frozen, "remedy": space.remedy,
                }
                for space in spaces
            ],
        }
    )  # fmt: skip


def _random_batch(shape: str, device: str) -> Tensor:
    """Return four random examples of a shape such as "3,32,32"."""
    try:
        sizes = [int(part) for part in shape.split(",")]
    except ValueError as error:
        raise ArgumentError(f"--shape {shape!r}; give whole numbers, such as 3,32,32") from error
    if min(sizes) < 1:
        raise ArgumentError(f"--shape {shape!r}; every size must be at least 1")
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, *sizes, generator=generator).to(checked_device(device))


def compress(
    model: ModelOptions,
    data: DataOptions,
    method: MethodOptions,
    output: OutputOptions,
    options: CompressOptions,
    budget: Budget,
    as_json: bool,
) -> None:
    """Compress a network and write the result folder."""
    # A budget may turn off the refit of a method, unless the user asked for it.
    parts = budget.rule.prepare(_method(method), method.refit is None)
    _check(options)
    with process_group() as processes, model_output_aside(as_json):
        network = load_model(model)
        batches = open_batches(data, model, network)
        evaluation = None
        if options.evaluation is not None:
            evaluation_data = replace(data, path=options.evaluation, limit=0)
            evaluation = evaluation_batches(evaluation_data, model, network, output, options.part)
        budget_argument: dict[str, Any] = {budget.kind: budget.value}
        result = interpress.compress(
            network,
            batches,
            method=parts,
            exclude=options.exclude or [],
            part=options.part,
            round_to=options.round_to,
            min_width=options.min_width,
            same_widths=options.same_widths or options.pretrained is not None,
            seed=data.seed,
            memory=options.memory,
            device=options.compute_on,
            checkpoint=options.checkpoint,
            preprocessing=batches.preprocessing(),
            lowrank=options.lowrank,
            distill=options.minutes or MINUTES if options.distill else False,
            **output.arguments(),
            **budget_argument,
        )
        result.save(options.out, overwrite=options.force, report=True, evaluation=evaluation)
        remark = ""
        if processes.is_first and model.name.startswith(PREFIX):
            remark = add_pruned(result, options.out)
        if options.pretrained is not None:
            result.save_pretrained(options.pretrained, overwrite=options.force)
    if not processes.is_first:
        return
    if as_json:
        print_json(_result_record(result, options.out))
        return
    try:
        print(result.summary())
        if result.onnx is not None:
            print(result.onnx)
        print(f"Saved to {options.out}; open {options.out / PAGE} in a browser", flush=True)
        if remark:
            print(remark, flush=True)
        if options.pretrained is not None:
            print(f"{options.pretrained} can be loaded by from_pretrained", flush=True)
    except OSError as error:
        raise StorageError(
            f"the result is in {options.out}, but standard output cannot be written "
            f"({error.strerror})"
        ) from error


def _check(options: CompressOptions) -> None:
    """Check what would otherwise fail only after the network was compressed."""
    checked_target(options.out, options.force, "pass --force")
    if options.minutes is not None and not options.distill:
        raise ArgumentError("--minutes is for --distill; give both, or leave it out")
    if options.pretrained is not None and options.pretrained.exists() and not options.force:
        raise StorageError(f"{options.pretrained} exists already; pass --force to replace it")
    if options.compute_on is not None:
        checked_device(options.compute_on, "--compute-on")


def _method(options: MethodOptions) -> interpress.Method:
    return interpress.Method.named(options.method, **options.changes())


def _result_record(result: interpress.Result, folder: Path) -> dict[str, Any]:
    agreement = result.agreement
    return {
        "folder": str(folder),
        "report": str(folder / PAGE),
        "flops": result.flops,
        "params": result.params,
        "latency": result.latency,
        "agreement": None if agreement is None else agreement_record(agreement),
        "onnx": None if result.onnx is None else asdict(result.onnx),
        "widths": dict(result.widths),
        "ranks": dict(result.ranks),
    }


def evaluate(
    model: ModelOptions,
    data: DataOptions,
    output: OutputOptions,
    compressed: Path | None,
    other: str | None,
    other_weights: Path | None,
    as_json: bool,
) -> None:
    """Compare two networks on the same data."""
    if (compressed is None) == (other is None):
        raise ArgumentError("give one of --compressed FOLDER and --other MODEL to compare with")
    if other is None and other_weights is not None:
        raise ArgumentError("--other-weights is for --other; leave it out")
    with model_output_aside(as_json):
        first = load_model(model)
        batches = open_batches(data, model, first)
        if compressed is not None:
            second = load_earlier(compressed, first, model, batches)
        else:
            assert other is not None
            second = load_model(replace(model, name=other, weights=other_weights))
        part = None if compressed is None else part_of(compressed)
        agreement = compare((first, second), batches, batches.labels(), output, data.path, part)
    if as_json:
        print_json(agreement_record(agreement))
        return
    if part is not None:
        print(f"outputs of the part {part}:")
    print("\n".join([str(agreement), *agreement.notes]))
    if agreement.accuracy is not None:
        print(f"accuracy {agreement.accuracy[0]:.2%} and {agreement.accuracy[1]:.2%}")
    if agreement.per_class:
        print_table(
            ("class", "examples", "agreement"),
            [(str(r.label), f"{r.count:,}", f"{r.agreement:.2%}") for r in agreement.per_class],
        )


def curve(
    model: ModelOptions,
    data: DataOptions,
    method: MethodOptions,
    output: OutputOptions,
    points: int,
    measure: bool,
    asked: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Print the predicted trade-off, and the measured agreement if asked."""
    parts = _method(method)
    with model_output_aside(as_json):
        network = load_model(model)
        batches = open_batches(data, model, network)
        analysis = interpress.analyze(
            network, batches, **asked, seed=data.seed, **output.arguments()
        )
        rows = [
            (point, _measured(analysis, point, parts) if measure else None)
            for point in analysis.curve(method=parts, points=points)
        ]
    if as_json:
        records = [_point_record(point, agreement, measure) for point, agreement in rows]
        print_json({"method": parts.name, "points": records})
        return
    columns = ["FLOPs left", "parameters left", "predicted loss"] + ["agreement"] * measure
    print_table(
        columns,
        [_cells(point, agreement)[: len(columns)] for point, agreement in rows],
        caption=f"predicted loss: {rows[0][0].unit}",
    )


def _measured(
    analysis: interpress.Analysis, point: Point, method: interpress.Method
) -> Agreement | None:
    """Return the agreement of the network at a point of the curve, on held-out examples."""
    # The margin keeps rounding from excluding the point's own widths.
    return analysis.compress(flops=min(1.0, point.flops + 1e-9), method=method).agreement


def _point_record(point: Point, agreement: Agreement | None, measured: bool) -> dict[str, Any]:
    record: dict[str, Any] = {
        "flops": point.flops,
        "params": point.params,
        "loss": point.loss,
        "unit": point.unit,
    }
    if measured:
        record["agreement"] = None if agreement is None else agreement_record(agreement)
    return record


def _cells(point: Point, agreement: Agreement | None) -> list[str]:
    fraction = None if agreement is None else agreement.agreement
    return [
        f"{point.flops:.1%}",
        f"{point.params:.1%}",
        f"{point.loss:.4f}",
        "" if fraction is None else f"{fraction:.2%}",
    ]
