"""The command `distill`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import interpress
from interpress.cli.data_files.batches import open_batches
from interpress.cli.data_options import DataOptions
from interpress.cli.earlier_result import load_earlier
from interpress.cli.failing import command_line
from interpress.cli.loading import load_model
from interpress.cli.model_options import ModelOptions
from interpress.cli.output_options import OutputOptions
from interpress.cli.printing import agreement_record, model_output_aside, print_json
from interpress.data.calibration_set import CalibrationSet
from interpress.errors import ArgumentError
from interpress.parallel.processes import process_group
from interpress.storage.plan_record import Origin
from interpress.storage.result_folder import checked_target, part_of, save_distilled


def distill(
    folder: Path,
    model: ModelOptions,
    data: DataOptions,
    output: OutputOptions,
    out: Path,
    force: bool,
    asked: dict[str, Any],
    as_json: bool,
) -> None:
    """Distil the network of a folder and write the result into another one."""
    checked_target(out, force, "pass --force")
    if (part := part_of(folder)) is not None:
        raise ArgumentError(
            f"{folder} holds a model with a smaller part ({part}), which this command cannot "
            "distil; compress it again, with --part and --distill"
        )
    with process_group() as processes, model_output_aside(as_json):
        original = load_model(model)
        batches = open_batches(data, model, original)
        smaller = load_earlier(folder, original, model, batches, only_these_weights=True)
        distilled = interpress.distill(
            original, smaller, batches, seed=data.seed, **asked, **output.arguments()
        )
        if processes.is_first:
            read = CalibrationSet(batches, original)
            origin = Origin(command_line(), batches.count, read.digest())
            save_distilled(folder, original, distilled, read.first(), out, force, origin)
    if not processes.is_first:
        return
    if as_json:
        agreement = distilled.agreement
        print_json(
            {
                "folder": str(out),
                "distilled": distilled.distillation.record(),
                "agreement": None if agreement is None else agreement_record(agreement),
            }
        )
        return
    print(distilled)
    print(f"Saved to {out}; interpress report {out} writes its report", flush=True)
