"""What the commands do with their options."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import interpress
from interpress.allocation.curve import Point
from interpress.cli.comparing import compare
from interpress.cli.data_files.batches import open_batches
from interpress.cli.data_options import DataOptions
from interpress.cli.earlier_result import load_earlier, say_if_used
from interpress.cli.failing import advise_if_misfit, warn
from interpress.cli.loading import checked_device, load_model
from interpress.cli.method_options import MethodOptions
from interpress.cli.model_options import ModelOptions
from interpress.cli.output_options import OutputOptions
from interpress.cli.printing import agreement_record, model_output_aside, print_json, print_table
from interpress.data.calibration_set import CalibrationSet
from interpress.data.part import Part
from interpress.errors import ArgumentError
from interpress.evaluation.tally import Agreement
from interpress.pipeline.warn import FewExamplesWarning, RuinedWarning
from interpress.spaces.batching import captured_examples
from interpress.storage.result_folder import part_of


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
    if shape is not None:
        advise_if_misfit(
            "give the shape of one example, without the batch, with --shape; for a network that "
            "reads tokens, give --text or --data and --tokenizer instead"
        )
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
            if part_of(compressed) is None:
                say_if_used(compressed, CalibrationSet(batches, first))
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
    parts = interpress.Method.named(method.method, **method.changes())
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
    """Return the agreement of the network at a point of the curve, on held-out examples.

    Warnings name the point. What to do about a ruined network is left out: the table says which
    other points hold.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # The margin keeps rounding from excluding the point's own widths.
        result = analysis.compress(flops=min(1.0, point.flops + 1e-9), method=method)
    for entry in caught:
        text = str(entry.message)
        if isinstance(entry.message, RuinedWarning):
            text = text.removesuffix(entry.message.hint).rstrip(". ")
        if isinstance(entry.message, RuinedWarning | FewExamplesWarning):
            text = f"at {point.flops:.1%} of the FLOPs: {text}"
        warn(text)
    return result.agreement


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
