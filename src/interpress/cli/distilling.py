"""The command `distill`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import interpress
from interpress.cli.comparing import compare, evaluation_batches
from interpress.cli.data_files.batches import open_batches
from interpress.cli.data_options import DataOptions
from interpress.cli.earlier_result import load_earlier
from interpress.cli.failing import command_line
from interpress.cli.loading import load_model
from interpress.cli.model_options import ModelOptions
from interpress.cli.output_options import OutputOptions
from interpress.cli.printing import (
    agreement_record,
    evaluation_text,
    model_output_aside,
    print_json,
    verdict_record,
    verdict_text,
)
from interpress.data.calibration_set import CalibrationSet
from interpress.data.example_hashes import as_text, hashes_of
from interpress.errors import ArgumentError
from interpress.parallel.processes import process_group
from interpress.report.facts import Facts
from interpress.report.page import page_of
from interpress.report.verdict import verdict_of
from interpress.storage.plan_record import (
    Origin,
    distilled_record,
    evaluation_record,
    used_examples,
)
from interpress.storage.result_folder import (
    PAGE,
    checked_target,
    part_of,
    read_plan,
    save_distilled,
)


@dataclass(frozen=True)
class DistillOptions:
    """Where to write the result, how long to train, and what to judge it on."""

    out: Path
    force: bool
    evaluation: Path | None
    limits: dict[str, Any]
    """Keyword arguments of `interpress.distill`."""


def distill(
    folder: Path,
    model: ModelOptions,
    data: DataOptions,
    output: OutputOptions,
    options: DistillOptions,
    as_json: bool,
) -> None:
    """Distil the network of a folder, and write the result and its page into another one."""
    checked_target(options.out, options.force, "pass --force")
    if (part := part_of(folder)) is not None:
        raise ArgumentError(
            f"{folder} holds a model with a smaller part ({part}), which this command cannot "
            "distil; compress it again, with --part and --distill"
        )
    with process_group() as processes, model_output_aside(as_json):
        original = load_model(model)
        batches, others = open_batches(data, model, original), None
        if options.evaluation is not None:
            others_data = replace(data, path=options.evaluation, limit=0)
            others = evaluation_batches(others_data, model, original, output, None)
        smaller = load_earlier(folder, original, model, batches, only_these_weights=True)
        distilled = interpress.distill(
            original, smaller, batches, seed=data.seed, **options.limits, **output.arguments()
        )
        if processes.is_first:
            plan, read, judged = read_plan(folder), CalibrationSet(batches, original), None
            before, trained = used_examples(plan), set(hashes_of(read))
            if others is not None:
                assert options.evaluation is not None
                before_training, agreement = (
                    compare((original, network), others, None, output, options.evaluation)
                    for network in (smaller, distilled.model)
                )
                notes = [
                    str(distilled.distillation),
                    f"Before the distillation, the same examples gave: {before_training}.",
                ]
                used = None if before is None else before | trained
                judged = evaluation_record(agreement, notes, used, CalibrationSet(others, original))
            known = None if before is None else as_text(before | trained)
            origin = Origin(command_line(), batches.count, read.digest(), known)
            record = distilled_record(plan, original, distilled, read.first(), origin, judged)
            save_distilled(
                folder, record, (original, distilled.model), options.out, options.force,
                page_of(record),
            )  # fmt: skip
    if processes.is_first:
        _say(distilled, record, options.out, as_json)


def _say(
    distilled: interpress.Distilled, record: Mapping[str, Any], out: Path, as_json: bool
) -> None:
    """Print what training did, and where it is."""
    verdict, held = verdict_of(Facts(record)), distilled.agreement
    if as_json:
        print_json(
            {
                "folder": str(out),
                "report": str(out / PAGE),
                "distilled": distilled.distillation.record(),
                "agreement": None if held is None else agreement_record(held),
                "evaluation": record["evaluation"],
                "verdict": verdict_record(verdict),
            }
        )
        return
    print(distilled)
    if record["evaluation"] is not None:
        print(evaluation_text(record["evaluation"]))
    print(verdict_text(verdict))
    print(f"Saved to {out}; open {out / PAGE} in a browser", flush=True)
