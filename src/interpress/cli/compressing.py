"""The command `compress`."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import nn

import interpress
from interpress.budgets.budget import Budget
from interpress.cli.comparing import evaluation_batches
from interpress.cli.compress_options import CompressOptions
from interpress.cli.data_files.batches import Batches, open_batches
from interpress.cli.data_files.text import load_tokenizer
from interpress.cli.data_options import DataOptions
from interpress.cli.failing import command_line
from interpress.cli.loading import (
    checked_device,
    is_as_built,
    load_model,
    weights_file_of,
)
from interpress.cli.method_options import MethodOptions
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
from interpress.cli.timm_models import PREFIX, add_pruned
from interpress.distillation.options import MINUTES
from interpress.errors import ArgumentError, StorageError
from interpress.parallel.processes import process_group
from interpress.pretrained.config_edits import has_config
from interpress.report.facts import Facts
from interpress.report.verdict import verdict_of
from interpress.storage.result_folder import PAGE, checked_target, read_plan


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
    parts = budget.rule.prepare(
        interpress.Method.named(method.method, **method.changes()), method.refit is None
    )
    _check(options)
    with process_group() as processes, model_output_aside(as_json):
        network = load_model(model)
        _check_pretrained(options, network)
        batches = open_batches(data, model, network)
        evaluation = None
        if options.evaluation is not None:
            evaluation_data = replace(data, path=options.evaluation, limit=0)
            evaluation = evaluation_batches(evaluation_data, model, network, output, options.part)
        result = _compressed(
            network, batches, parts, budget, options, seed=data.seed, **output.arguments()
        )
        recorded = replace(
            result.options,
            command=command_line(),
            as_built=is_as_built(model),
            weights_file=weights_file_of(model),
        )
        result = replace(result, options=recorded)
        result.save(
            options.out,
            overwrite=options.force,
            report=True,
            evaluation=evaluation,
            examples=options.examples,
            tokenizer=_tokenizer(data) if options.examples else None,
        )
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
        _say(result, options, remark)
    except OSError as error:
        raise StorageError(
            f"the result is in {options.out}, but standard output cannot be written "
            f"({error.strerror})"
        ) from error


def _compressed(
    network: nn.Module,
    batches: Batches,
    method: interpress.Method,
    budget: Budget,
    options: CompressOptions,
    **others: Any,
) -> interpress.Result:
    """Call `interpress.compress` with the options of the command."""
    asked: dict[str, Any] = {budget.kind: budget.value}
    return interpress.compress(
        network,
        batches,
        method=method,
        exclude=options.exclude or [],
        part=options.part,
        round_to=options.round_to,
        min_width=options.min_width,
        same_widths=options.same_widths or options.pretrained is not None,
        memory=options.memory,
        device=options.compute_on,
        checkpoint=options.checkpoint,
        preprocessing=batches.preprocessing(),
        lowrank=options.lowrank,
        distill=options.minutes or MINUTES if options.distill else False,
        **asked,
        **others,
    )


def _say(result: interpress.Result, options: CompressOptions, remark: str) -> None:
    """Print what came out, and where it is."""
    print(result.summary())
    plan = read_plan(options.out)
    if evaluated := plan.get("evaluation"):
        print(evaluation_text(evaluated))
    if result.onnx is not None:
        print(result.onnx)
    print(verdict_text(verdict_of(Facts(plan))))
    print(f"Saved to {options.out}; open {options.out / PAGE} in a browser", flush=True)
    if remark:
        print(remark, flush=True)
    if options.pretrained is not None:
        print(f"{options.pretrained} can be loaded by from_pretrained", flush=True)


def _tokenizer(data: DataOptions) -> Any:
    """Return the tokenizer that the options name; None leaves it to the folder of the model."""
    return None if data.tokenizer is None else load_tokenizer(data.path, data.tokenizer)


def _check(options: CompressOptions) -> None:
    """Check what would otherwise fail only after the network was compressed."""
    checked_target(options.out, options.force, "pass --force")
    if options.minutes is not None and not options.distill:
        raise ArgumentError("--minutes is for --distill; give both, or leave it out")
    if options.pretrained is not None and options.pretrained.exists() and not options.force:
        raise StorageError(f"{options.pretrained} exists already; pass --force to replace it")
    if options.compute_on is not None:
        checked_device(options.compute_on, "--compute-on")


def _check_pretrained(options: CompressOptions, network: nn.Module) -> None:
    """Check that `--save-pretrained` can be obeyed."""
    if options.pretrained is not None and not has_config(network):
        raise ArgumentError(
            f"--save-pretrained is for models of transformers, and {type(network).__name__} is "
            "none; leave it out: --out writes the result"
        )


def _result_record(result: interpress.Result, folder: Path) -> dict[str, Any]:
    agreement, plan = result.agreement, read_plan(folder)
    return {
        "folder": str(folder),
        "report": str(folder / PAGE),
        "flops": result.flops,
        "params": result.params,
        "latency": result.latency,
        "agreement": None if agreement is None else agreement_record(agreement),
        "evaluation": plan.get("evaluation"),
        "verdict": verdict_record(verdict_of(Facts(plan))),
        "onnx": None if result.onnx is None else asdict(result.onnx),
        "widths": dict(result.widths),
        "ranks": dict(result.ranks),
    }
