"""Results and analyses as files: safetensors and JSON, nothing that runs when it is read.

A result is a folder: `weights.safetensors` (the smaller network's tensors under their own names)
and `plan.json` (what was asked, what was kept, which sizes changed, the evidence). Loading needs no
data and no analysis: tensors and recorded sizes are put into a copy of a freshly built original.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from interpress.errors import StorageError
from interpress.graph.model_state import unwrap
from interpress.storage import files as storage
from interpress.surgery.weights import copy_with

if TYPE_CHECKING:
    from interpress.result import Result

WEIGHTS, PLAN, PAGE = "weights.safetensors", "plan.json", "report.html"
_KIND = "compressed-network"


def save_result(
    result: Result, folder: str | os.PathLike[str], overwrite: bool, page: str | None = None
) -> None:
    """Write a result beside its place, then move it there."""
    target = checked_target(folder, overwrite)
    original = result.spaces.program.model
    record = {
        "interpress": _KIND,
        "version": storage.FORMAT_VERSION,
        "versions": {"interpress": _version(), "torch": str(torch.__version__)},
        "asked": {"budget": result.budget.kind, "value": result.budget.value},
        "method": asdict(result.method),
        "seed": result.seed,
        "flops": [result.before.flops, result.after.flops],
        "parameters": [result.before.parameters, result.after.parameters],
        "agreement": _evidence(result),
        "refit_kept": result.built.refit_kept,
        "proof": result.built.proof.difference,
        "plan": [asdict(row) for row in result.plan],
        "frozen": {space.name: space.frozen for space in result.spaces.frozen},
        "original": _architecture(original),
        "sizes": list(changed_sizes(original, result.model)),
    }
    text = json.dumps(record, indent=1)
    tensors = dict(_tensors(result.model))
    beside = target.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        beside.mkdir(parents=True)
        (beside / PLAN).write_text(text, encoding="utf-8")
        if page is not None:
            (beside / PAGE).write_text(page, encoding="utf-8")
        storage.save_tensors(beside / WEIGHTS, _KIND, tensors, {"plan": _sha(text)})
        _replace(beside, target)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(
            f"cannot write {target}: {error.strerror}; nothing was changed. Choose a place that is "
            "writable and has room"
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def checked_target(
    folder: str | os.PathLike[str], overwrite: bool, remedy: str = "pass overwrite=True"
) -> Path:
    """The folder a result may be written to, or what stands in its way."""
    target = Path(os.path.realpath(folder))  # through a link, not over it
    if target.exists() and not target.is_dir():
        raise StorageError(f"{target} is a file; give a folder")
    above = next(path for path in (target, *target.parents) if path.exists())
    if not above.is_dir():
        raise StorageError(f"{above} is a file, so that {target} cannot be made; choose another")
    there = sorted(path.name for path in target.iterdir()) if target.exists() else []
    foreign = [name for name in there if name not in (PLAN, WEIGHTS, PAGE)]
    if foreign:
        raise StorageError(f"{target} also holds {foreign[0]!r}; move that away, or choose another")
    if there and not overwrite:
        raise StorageError(f"{target} exists and is not empty; {remedy} to replace it")
    return target


def load(folder: str | os.PathLike[str], model: nn.Module) -> nn.Module:
    """Turn a freshly built *original* architecture into the compressed network that was saved.

    The model's own weights do not matter, its shapes do; it is left as it was. Nothing is executed
    from the files.
    """
    source = Path(folder)
    record, tensors = _read(source)
    network = unwrap(model)
    _check_architecture(source, record["original"], _architecture(network))
    own = dict(_tensors(network))
    changed = {
        name: tensor if own[name].is_meta else tensor.to(own[name].device)
        for name, tensor in tensors.items()
    }
    smaller = copy_with(network, changed)
    for name, tensor in dict(_tensors(smaller)).items():
        if name in tensors and tensor.dtype != tensors[name].dtype:
            raise StorageError(f"{source}: {name!r} could not be set; build the model plainly")
    modules = dict(smaller.named_modules())
    for module, attribute, value in record["sizes"]:
        kept = tuple(value) if isinstance(getattr(modules[module], attribute), tuple) else value
        setattr(modules[module], attribute, kept)
    return smaller


def _read(source: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not source.is_dir():
        raise StorageError(f"{source} is not a folder; give the one that was saved to")
    for name in (PLAN, WEIGHTS):
        if not (source / name).is_file():
            raise StorageError(f"{source} lacks {name}; copy the folder again, or save again")
    try:
        text = (source / PLAN).read_text(encoding="utf-8")
        record = json.loads(text)
        kind, version = record["interpress"], int(record["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{source / PLAN} is not a readable plan ({type(error).__name__}: {error}); it may be "
            "cut short: save it again"
        ) from error
    if kind != _KIND:
        raise StorageError(f"{source / PLAN} holds {kind!r}, not a {_KIND}; give another folder")
    if version > storage.FORMAT_VERSION:
        raise StorageError(
            f"{source} has format version {version}, this interpress reads up to "
            f"{storage.FORMAT_VERSION}; upgrade interpress"
        )
    tensors, fields = storage.load_tensors(source / WEIGHTS, _KIND)
    if fields.get("plan") != _sha(text):
        raise StorageError(
            f"{source / PLAN} was changed after it was written, or belongs to other weights; "
            "restore it, or save the result again"
        )
    return record, tensors


def changed_sizes(original: nn.Module, smaller: nn.Module) -> Iterator[tuple[str, str, Any]]:
    """Whole numbers (and tuples of them) that modules keep, where they differ."""
    for (name, before), after in zip(original.named_modules(), smaller.modules(), strict=True):
        for attribute, value in vars(before).items():
            new = vars(after).get(attribute, value)
            if _is_size(value) and _is_size(new) and value != new:
                yield name, attribute, new


def _is_size(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(isinstance(part, int) for part in value)
    return isinstance(value, int) and not isinstance(value, bool)


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every parameter and buffer once, also those that a state dict leaves out."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def _architecture(model: nn.Module) -> dict[str, Any]:
    return {
        "class": type(model).__name__,
        "modules": {name: type(module).__name__ for name, module in model.named_modules()},
        "tensors": {name: list(tensor.shape) for name, tensor in _tensors(model)},
    }


def _check_architecture(source: Path, saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    remedy = "build the original architecture, as it was before compression"
    for part, noun in (("tensors", "tensor"), ("modules", "module")):
        ours, theirs = saved[part], given[part]
        for name in ours:
            if name not in theirs:
                raise StorageError(f"{source}: the model has no {noun} {name!r}; {remedy}")
            if ours[name] != theirs[name]:
                raise StorageError(
                    f"{source}: {noun} {name!r} is {theirs[name]} in this model, the compressed "
                    f"one was made from {ours[name]}; {remedy}"
                )
        extra = next((name for name in theirs if name not in ours), None)
        if extra is not None:
            raise StorageError(f"{source}: the original had no {noun} {extra!r}; {remedy}")


def _evidence(result: Result) -> dict[str, Any] | None:
    agreement = result.agreement
    if agreement is None:
        return None
    numbers = {
        name: getattr(agreement, name)
        for name in ("kind", "examples", "decisions", "agreement", "interval", "divergence",
                     "output_error")
    }  # fmt: skip
    return {"on": "held-out calibration data", **numbers, "flipped": len(agreement.flips)}


def _replace(beside: Path, target: Path) -> None:
    """Move a folder into place; what stood there goes only once the new one stands."""
    if target.exists():
        old = target.parent / f".{uuid.uuid4().hex}.old"
        os.replace(target, old)
        try:
            os.replace(beside, target)
        except OSError:
            os.replace(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.replace(beside, target)


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _version() -> str:
    from interpress import __version__  # which is defined after this module is imported

    return __version__
