"""An analysis as one safetensors file: what was measured, never the data it was measured on."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from interpress.calibration.sample_weights import TopClasses, joined, top_classes_of
from interpress.calibration.statistics import PatchMoments, Statistics
from interpress.data.batches import batch_size
from interpress.data.calibration_set import CalibrationSet
from interpress.data.sources import Forward
from interpress.dryrun.find import find_spaces
from interpress.errors import StorageError
from interpress.evaluation.output_meaning import OutputMeaning
from interpress.graph.example import Example
from interpress.graph.model_state import unwrap
from interpress.linalg.factor import RFactor
from interpress.pipeline.study import Study
from interpress.spaces.spaces import Spaces
from interpress.storage import files as storage
from interpress.graph.model_state import output_tensors

_KIND = "analysis"


def save_analysis(knowledge: Study, seed: int, path: str | os.PathLike[str]) -> None:
    """Write factors, moments, energies and measured effects."""
    tensors: dict[str, Tensor] = {}
    seen, factors, moments = knowledge.seen, {}, {}
    for name, factor in seen.factors.items():
        form = "gram" if factor.root is None else "root"
        tensors[f"{form}:{name}"] = getattr(factor, form)
        factors[name] = [form, factor.rows, factor.floor]
    for name, own in seen.moments.items():
        tensors[f"total:{name}"] = own.total
        if own.origin is not None:  # else they are those of the factor
            tensors[f"patches:{name}"], tensors[f"origin:{name}"] = own.gram, own.origin
        if own.basis is not None:
            tensors[f"basis:{name}"] = own.basis
        moments[name] = own.rows
    if seen.decisions is not None:
        tensors["classes"], tensors["chances"] = seen.decisions.classes, seen.decisions.chances
    record = {
        "seed": seed,
        "judge": [knowledge.judge.place, knowledge.judge.kind],
        "examples": seen.examples,
        "factors": factors,
        "energies": seen.energies,
        "moments": moments,
        "effects": knowledge.effects,
        "spaces": {space.name: space.size for space in knowledge.spaces.shrinkable},
        "model": _fingerprint(knowledge.model),
        "data": seen.data,
        "example": _described(knowledge.spaces.program.example),
    }
    storage.save_tensors(path, _KIND, tensors, {"record": json.dumps(record)})


def load_analysis(
    path: str | os.PathLike[str], model: nn.Module, data: Any, forward: Forward | None
) -> tuple[Study, int]:
    """Read it back for the very same model."""
    tensors, fields = storage.load_tensors(path, _KIND)
    network = unwrap(model)
    try:
        record = json.loads(fields["record"])
        seed, judge = int(record["seed"]), OutputMeaning(*record["judge"])
        saved, sizes = record["model"], record["spaces"]
        device = next((t.device for t in network.parameters()), torch.device("cpu"))
        seen = _statistics(record, tensors, device)
        example = _made(record["example"], device)
    except (KeyError, ValueError, TypeError) as error:
        raise StorageError(f"{path} lacks or garbles {error}; analyze again") from error
    if saved != _fingerprint(network):
        raise StorageError(
            f"{path} is an analysis of a model with other weights; load the weights it was made "
            "with, or analyze this model"
        )
    calibration = None
    if data is not None:
        calibration = CalibrationSet(data, network, forward=forward, seed=seed)
        calibration.check_stable()
        example = calibration.first()
    spaces = _the_same(find_spaces(network, example), sizes, path)
    knowledge = Study(spaces, seen, calibration, judge, seed)
    if calibration is not None:
        knowledge.fit_examples = calibration.count("fit")
        if seen.decisions is None or calibration.fingerprint() != seen.data:  # other data
            knowledge.decisions = _decisions(network, calibration, judge)
    knowledge.effects = {
        selection: {name: [(int(w), e) for w, e in rows] for name, rows in own.items()}
        for selection, own in record["effects"].items()
    }
    return knowledge, seed


def _the_same(spaces: Spaces, sizes: dict[str, int], path: Any) -> Spaces:
    found = {space.name: space.size for space in spaces.shrinkable}
    missing = [name for name, size in sizes.items() if found.get(name) != size]
    if missing:
        raise StorageError(
            f"{path} knows a space {missing[0]!r} that this model does not have; analyze again"
        )
    reason = "it was excluded when the model was analyzed"
    return spaces.freeze({name: reason for name in found if name not in sizes})


def _statistics(
    record: dict[str, Any], tensors: dict[str, Tensor], device: torch.device
) -> Statistics:
    factors = {
        name: RFactor(rows, floor, **{form: tensors[f"{form}:{name}"].to(device)})
        for name, (form, rows, floor) in record["factors"].items()
    }

    def read(kind: str, name: str) -> Tensor | None:
        return tensors[f"{kind}:{name}"].to(device) if f"{kind}:{name}" in tensors else None

    moments = {}
    for name, rows in record["moments"].items():
        own = read("patches", name)
        gram = factors[name].G if own is None else own
        total = tensors[f"total:{name}"].to(device)
        moments[name] = PatchMoments(gram, total, rows, read("origin", name), read("basis", name))
    decisions = None
    if "classes" in tensors:
        decisions = TopClasses(tensors["classes"], tensors["chances"])
    return Statistics(
        factors,
        dict(record["energies"]),
        moments,
        int(record["examples"]),
        decisions,
        str(record.get("data", "")),
    )


def _decisions(
    model: nn.Module, calibration: CalibrationSet, judge: OutputMeaning
) -> TopClasses | None:
    batches = calibration.batches("fit")
    return joined([top_classes_of(judge, output_tensors(model, e), batch_size(e)) for e in batches])


def _fingerprint(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(plain.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _described(example: Example) -> dict[str, Any]:
    """The shapes, types and ranges of an example, not its values."""

    def described(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return {"value": leaf}
        plain = leaf.double() if leaf.is_floating_point() else leaf.long()
        span = [plain.min().item(), plain.max().item()] if leaf.numel() else [0, 1]
        return {"shape": list(leaf.shape), "dtype": str(leaf.dtype)[6:], "range": span}

    args, kwargs = pytree.tree_map(described, (list(example.args), dict(example.kwargs)))
    return {"args": args, "kwargs": kwargs}


def _made(described: Any, device: torch.device) -> Example:
    """An example of that description, from fixed random numbers."""
    generator = torch.Generator().manual_seed(0)

    def made(node: Any) -> Any:
        if isinstance(node, dict) and "dtype" in node:
            dtype, shape = getattr(torch, node["dtype"]), node["shape"]
            low, high = node["range"]
            if dtype.is_floating_point:
                spread = torch.rand(shape, generator=generator, dtype=torch.float64)
                return (low + (high - low) * spread).to(device, dtype)
            return torch.randint(low, high + 1, shape, generator=generator).to(device, dtype)
        if isinstance(node, dict) and set(node) == {"value"}:
            return node["value"]
        if isinstance(node, dict):
            return {key: made(value) for key, value in node.items()}
        return [made(value) for value in node]

    return Example(tuple(made(described["args"])), made(described["kwargs"]))
