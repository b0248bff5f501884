"""An analysis as one safetensors file: the statistics, never the calibration data."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from interpress.allocation.effects import Effects
from interpress.calibration.room import bytes_at_once
from interpress.calibration.sample_weights import TopClasses, concatenate, top_classes_of
from interpress.calibration.study import Study
from interpress.data.batches import batch_size
from interpress.data.calibration_set import CalibrationSet
from interpress.dryrun.find import find_spaces
from interpress.errors import ArgumentError, StorageError, warn_user
from interpress.evaluation.output_meaning import Output, OutputMeaning, find_meaning
from interpress.files.tensor_file import load_tensors, save_tensors
from interpress.graph.digest import weights_digest
from interpress.graph.model_state import output_tensors, unwrap
from interpress.pipeline.options import Options
from interpress.spaces.spaces import Spaces
from interpress.storage.example_description import describe, random_example
from interpress.storage.statistics_record import from_record, to_record

_KIND = "analysis"


def save_analysis(
    study: Study, effects: Mapping[str, Effects], path: str | os.PathLike[str]
) -> None:
    """Write factors, moments, variances, and the effects measured per selection."""
    if study.statistics.by_block:
        raise ArgumentError(
            f"the statistics of this model take {bytes_at_once(study.spaces) / 2**30:.1f} GiB, so "
            "they are measured block by block and not kept; save the result of compress instead"
        )
    tensors, statistics = to_record(study.statistics)
    record = {
        "seed": study.seed,
        "output": _output_record(study.meaning),
        "statistics": statistics,
        "effects": effects,
        "spaces": {space.name: space.size for space in study.spaces.shrinkable},
        "model": weights_digest(study.original),
        "example": describe(study.spaces.program.example),
    }
    save_tensors(path, _KIND, tensors, {"record": json.dumps(record)})


def load_analysis(
    path: str | os.PathLike[str],
    model: nn.Module,
    data: Any,
    options: Options,
) -> tuple[Study, dict[str, Effects]]:
    """Read an analysis back for the very same model; return it with the measured effects.

    The options say how data are read, and which function chose the deciding output, if one did.
    """
    tensors, fields = load_tensors(path, _KIND)
    network = unwrap(model)
    device = next((t.device for t in network.parameters()), torch.device("cpu"))
    try:
        record = json.loads(fields["record"])
        seed, kind = int(record["seed"]), record["output"]["kind"]
        chosen = _chosen_output(record["output"], options.output, path)
        fingerprint, sizes = record["model"], record["spaces"]
        statistics = from_record(tensors, record["statistics"], device)
        example = random_example(record["example"], device)
        effects = _effects(record["effects"])
    except (KeyError, ValueError, TypeError) as error:
        raise StorageError(f"{path} lacks or garbles {error}; analyze again") from error
    if fingerprint != weights_digest(network):
        raise StorageError(
            f"{path} is an analysis of a model with other weights; load the weights it was made "
            "with, or analyze this model"
        )
    calibration = None
    fit_examples, top_classes = statistics.examples, statistics.top_classes
    if data is not None:
        calibration = CalibrationSet(
            data, network, forward=options.forward, mask=options.mask, seed=seed
        )
        calibration.check_stable()
        example = calibration.first()
    spaces = _matching(find_spaces(network, example), sizes, path)
    meaning = find_meaning(network, example, kind, chosen)
    if calibration is not None:
        fit_examples = calibration.count("fit")
        is_other = calibration.fingerprint() != statistics.data
        if is_other:
            warn_user(
                f"the data are not those that {path} is an analysis of, so it describes other "
                "examples; analyze again with these data, or load it with the same ones"
            )
        if top_classes is None or is_other:
            top_classes = _predicted(network, calibration, meaning)
    study = Study(spaces, statistics, calibration, meaning, fit_examples, top_classes, seed)
    return study, effects


def _output_record(meaning: OutputMeaning) -> dict[str, Any]:
    """Return which output decides; a function cannot be saved."""
    is_function = meaning.function is not None
    return {"kind": meaning.kind, "name": meaning.name, "function": is_function}


def _chosen_output(record: dict[str, Any], given: Output, path: Any) -> Output:
    """Return the `output=` that chooses the saved output, or raise if it must be given again."""
    name = str(record["name"])
    if record["function"]:
        if not callable(given):
            raise StorageError(
                f"{path} was made with output= as a function ({name}), which cannot be saved; pass "
                "the same function to Analysis.load as output="
            )
        return given
    if given is not None:
        raise StorageError(
            f"{path} was made with the output {name!r} deciding, which it remembers; leave output= "
            "out, or analyze again with another output"
        )
    return name or None


def _matching(spaces: Spaces, sizes: dict[str, int], path: Any) -> Spaces:
    """Return the spaces with those frozen that were excluded when the model was analysed."""
    shrinkable = {space.name: space.size for space in spaces.shrinkable}
    missing = [name for name, size in sizes.items() if shrinkable.get(name) != size]
    if missing:
        raise StorageError(
            f"{path} has a space {missing[0]!r} that this model does not have; analyze again"
        )
    reason = "it was excluded when the model was analysed"
    return spaces.freeze({name: reason for name in shrinkable if name not in sizes})


def _effects(record: dict[str, Any]) -> dict[str, Effects]:
    return {
        selection: {
            name: [(int(width), distance) for width, distance in rows]
            for name, rows in by_space.items()
        }
        for selection, by_space in record.items()
    }


def _predicted(
    model: nn.Module, calibration: CalibrationSet, meaning: OutputMeaning
) -> TopClasses | None:
    """Return the classes that the network predicts for the examples to fit."""
    return concatenate(
        [
            top_classes_of(meaning, output_tensors(model, example), batch_size(example))
            for example in calibration.batches("fit")
        ]
    )
