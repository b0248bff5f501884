"""An analysis as one safetensors file: the statistics, never the calibration data."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from interpress.allocation.effects import Effects
from interpress.calibration.sample_weights import TopClasses, concatenate, top_classes_of
from interpress.calibration.statistics import PatchMoments, Statistics
from interpress.calibration.study import Study
from interpress.data.batches import batch_size
from interpress.data.calibration_set import CalibrationSet
from interpress.data.inputs import Forward
from interpress.dryrun.find import find_spaces
from interpress.errors import StorageError
from interpress.evaluation.output_meaning import Output, OutputMeaning, find_meaning
from interpress.graph.model_state import output_tensors, unwrap
from interpress.linalg.factor import RFactor
from interpress.spaces.spaces import Spaces
from interpress.storage.example_description import describe, random_example
from interpress.storage.files import load_tensors, save_tensors

_KIND = "analysis"


def save_analysis(
    study: Study, effects: Mapping[str, Effects], path: str | os.PathLike[str]
) -> None:
    """Write factors, moments, variances, and the effects measured per selection."""
    statistics = study.statistics
    tensors: dict[str, Tensor] = {}
    factors, moments = {}, {}
    for name, factor in statistics.factors.items():
        form = "gram" if factor.root is None else "root"
        tensors[f"{form}:{name}"] = getattr(factor, form)
        factors[name] = [form, factor.rows, factor.floor]
    for name, patches in statistics.moments.items():
        tensors[f"total:{name}"] = patches.total
        if patches.origin is not None:  # else they are those of the factor
            tensors[f"patches:{name}"], tensors[f"origin:{name}"] = patches.gram, patches.origin
        if patches.basis is not None:
            tensors[f"basis:{name}"] = patches.basis
        moments[name] = patches.rows
    if statistics.top_classes is not None:
        tensors["classes"] = statistics.top_classes.classes
        tensors["probabilities"] = statistics.top_classes.probabilities
    record = {
        "seed": study.seed,
        "output": _output_record(study.meaning),
        "examples": statistics.examples,
        "factors": factors,
        "output_variances": statistics.output_variances,
        "moments": moments,
        "effects": effects,
        "spaces": {space.name: space.size for space in study.spaces.shrinkable},
        "model": _fingerprint(study.original),
        "data": statistics.data,
        "example": describe(study.spaces.program.example),
    }
    save_tensors(path, _KIND, tensors, {"record": json.dumps(record)})


def load_analysis(
    path: str | os.PathLike[str],
    model: nn.Module,
    data: Any,
    forward: Forward | None,
    output: Output = None,
) -> tuple[Study, dict[str, Effects]]:
    """Read an analysis back for the very same model; return it with the measured effects.

    `output` is the function that chose the deciding output, if it was a function.
    """
    tensors, fields = load_tensors(path, _KIND)
    network = unwrap(model)
    device = next((t.device for t in network.parameters()), torch.device("cpu"))
    try:
        record = json.loads(fields["record"])
        seed, kind = int(record["seed"]), record["output"]["kind"]
        chosen = _chosen_output(record["output"], output, path)
        fingerprint, sizes = record["model"], record["spaces"]
        statistics = _statistics(record, tensors, device)
        example = random_example(record["example"], device)
        effects = _effects(record["effects"])
    except (KeyError, ValueError, TypeError) as error:
        raise StorageError(f"{path} lacks or garbles {error}; analyze again") from error
    if fingerprint != _fingerprint(network):
        raise StorageError(
            f"{path} is an analysis of a model with other weights; load the weights it was made "
            "with, or analyze this model"
        )
    calibration = None
    fit_examples, top_classes = statistics.examples, statistics.top_classes
    if data is not None:
        calibration = CalibrationSet(data, network, forward=forward, seed=seed)
        calibration.check_stable()
        example = calibration.first()
    spaces = _matching(find_spaces(network, example), sizes, path)
    meaning = find_meaning(network, example, kind, chosen)
    if calibration is not None:
        fit_examples = calibration.count("fit")
        if top_classes is None or calibration.fingerprint() != statistics.data:  # other data
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


def _statistics(
    record: dict[str, Any], tensors: dict[str, Tensor], device: torch.device
) -> Statistics:
    def read(kind: str, name: str) -> Tensor | None:
        return tensors[f"{kind}:{name}"].to(device) if f"{kind}:{name}" in tensors else None

    factors = {
        name: RFactor(rows, floor, **{form: tensors[f"{form}:{name}"].to(device)})
        for name, (form, rows, floor) in record["factors"].items()
    }
    moments = {}
    for name, rows in record["moments"].items():
        patches = read("patches", name)
        gram = factors[name].G if patches is None else patches
        total = tensors[f"total:{name}"].to(device)
        moments[name] = PatchMoments(gram, total, rows, read("origin", name), read("basis", name))
    top_classes = None
    if "classes" in tensors:
        top_classes = TopClasses(tensors["classes"], tensors["probabilities"])
    return Statistics(
        factors,
        dict(record["output_variances"]),
        moments,
        int(record["examples"]),
        top_classes,
        str(record.get("data", "")),
    )


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


def _fingerprint(model: nn.Module) -> str:
    """Return a hash of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(plain.view(torch.uint8).numpy().data)
    return digest.hexdigest()
