"""Distil the network of a result, or any smaller network of which the original is at hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from interpress.calibration.study import Study
from interpress.data.calibration_set import CalibrationSet
from interpress.distillation.options import DistillOptions
from interpress.distillation.run import Distilled, distill_network, open_checkpoint
from interpress.evaluation.output_meaning import OutputMeaning, find_meaning
from interpress.files.checkpoint import Checkpoint
from interpress.graph.model_state import untouched
from interpress.network.network import Network
from interpress.parallel.processes import Processes
from interpress.pipeline.options import Options
from interpress.pipeline.steps import read_data
from interpress.progress import Display, display


def distilled(
    study: Study, network: Network, data: CalibrationSet, asked: DistillOptions, bars: Display,
    checkpoint: Checkpoint | None = None,
) -> Network:  # fmt: skip
    """Return a finished network after a distillation on some data."""
    done = distill_network(
        study.original, network.model, data, study.meaning, asked, bars,
        seed=study.seed, checkpoint=checkpoint,
    )  # fmt: skip
    agreement = done.agreement or network.agreement
    return replace(network, model=done.model, agreement=agreement, distillation=done.distillation)


def distill_result(
    study: Study, network: Network, data: Any, asked: DistillOptions, options: Options
) -> Network:
    """Return the network of a result after a distillation on given data, or on the study's."""
    processes = Processes()
    with (
        processes.together(),
        display(options.progress if processes.is_first else False) as bars,
        untouched(study.original),
    ):
        if data is None:
            examples = study.require_data()
        else:
            examples = read_data(study.original, data, replace(options, seed=study.seed))
        checkpoint = _checkpoint(options.checkpoint, study.original, network.model, examples, asked)
        return distilled(study, network, examples, asked, bars, checkpoint)


def distill_pair(
    original: nn.Module, smaller: nn.Module, data: Any, asked: DistillOptions, options: Options
) -> Distilled:
    """Return any smaller network after a distillation towards its original."""
    processes = Processes()
    with (
        processes.together(),
        display(options.progress if processes.is_first else False) as bars,
        untouched(original),
        untouched(smaller),
    ):
        examples = read_data(original, data, options)
        meaning: OutputMeaning = find_meaning(
            original, examples.first(), options.kind, options.output
        )
        checkpoint = _checkpoint(options.checkpoint, original, smaller, examples, asked)
        return distill_network(
            original, smaller, examples, meaning, asked, bars,
            seed=options.seed, checkpoint=checkpoint,
        )  # fmt: skip


def _checkpoint(
    folder: Path | None,
    original: nn.Module,
    smaller: nn.Module,
    data: CalibrationSet,
    asked: DistillOptions,
) -> Checkpoint:
    if folder is None:
        return Checkpoint()
    return open_checkpoint(str(folder), original, smaller, data, asked)
