"""A result as a folder: the smaller network's tensors and a plan, nothing that runs when read.

`weights.safetensors` holds the smaller network's tensors under their own names. `plan.json` says
what was asked, what was kept, which sizes changed, and the evidence. Loading needs no data and no
analysis: tensors and sizes are put into a copy of a freshly built original.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from interpress.errors import StorageError
from interpress.files.folder import replaced_folder
from interpress.files.tensor_file import (
    FORMAT_VERSION,
    load_tensors,
    save_tensors,
    source_path,
    target_path,
)
from interpress.formats.network_formats import FORMAT_FILES, as_network, write_in_format
from interpress.graph.model_state import unwrap
from interpress.pipeline.outcome import Outcome
from interpress.pretrained.build import built_from
from interpress.storage.architecture import (
    architecture_of,
    check_architecture,
    has_other_weights,
    tensors_of,
)
from interpress.storage.fingerprint import matches
from interpress.storage.plan_record import KIND
from interpress.storage.ranks import checked_ranks, with_ranks
from interpress.storage.sizes import set_sizes
from interpress.surgery.weights import copy_with

WEIGHTS, PLAN, PAGE = "weights.safetensors", "plan.json", "report.html"
PRUNED = "pruned.txt"  # for timm; see `storage.timm_folder`


def save_result(
    outcome: Outcome,
    record: Mapping[str, Any],
    folder: str | os.PathLike[str],
    overwrite: bool,
    page: str | None = None,
) -> None:
    """Write a result and its plan into a temporary folder, then move that into place.

    `record` is what `plan_record` says about the result.
    """
    target = checked_target(folder, overwrite)
    others = {} if page is None else {PAGE: page.encode()}
    _write(target, record, outcome.original, outcome.model, others)


def save_distilled(
    source: str | os.PathLike[str],
    record: Mapping[str, Any],
    networks: tuple[nn.Module, nn.Module],
    folder: str | os.PathLike[str],
    overwrite: bool,
    page: str,
) -> None:
    """Write the result in a folder again, after a distillation.

    `networks` are the original and the distilled one; `record` is what `distilled_record` says.
    """
    target = checked_target(folder, overwrite)
    pruned = source_path(source) / PRUNED  # distillation changes no size
    kept = {PRUNED: pruned.read_bytes()} if pruned.is_file() else {}
    _write(target, record, *networks, {**kept, PAGE: page.encode()})


def _write(
    target: Path,
    record: Mapping[str, Any],
    original: nn.Module,
    smaller: nn.Module,
    others: Mapping[str, bytes],
) -> None:
    """Write the network, its plan and other files, by name."""
    text = json.dumps(record, indent=1)
    with replaced_folder(target) as temporary:
        write_in_format(original, smaller, temporary)
        (temporary / PLAN).write_text(text, encoding="utf-8")
        for name, content in others.items():
            (temporary / name).write_bytes(content)
        save_tensors(temporary / WEIGHTS, KIND, dict(tensors_of(smaller)), {"plan": _sha(text)})


def read_plan(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the plan of a result, after a check that it belongs to the weights beside it."""
    return _read(source_path(folder))[0]


def checked_target(
    folder: str | os.PathLike[str], overwrite: bool, remedy: str = "pass overwrite=True"
) -> Path:
    """Return the folder that a result may be written to, or raise."""
    target = target_path(folder)
    if target.exists() and not target.is_dir():
        raise StorageError(f"{target} is a file; give a folder")
    above = next(path for path in (target, *target.parents) if path.exists())
    if not above.is_dir():
        raise StorageError(f"{above} is a file, so {target} cannot be created; choose another")
    names = sorted(path.name for path in target.iterdir()) if target.exists() else []
    known = (PLAN, WEIGHTS, PAGE, PRUNED, *FORMAT_FILES)
    foreign = [name for name in names if name not in known]
    if foreign:
        raise StorageError(f"{target} also holds {foreign[0]!r}; move that away, or choose another")
    if names and not overwrite:
        raise StorageError(f"{target} exists and is not empty; {remedy} to replace it")
    return target


def load(folder: str | os.PathLike[str], model: Any, *, check_weights: bool = False) -> nn.Module:
    """Turn a freshly built *original* architecture into the compressed network that was saved.

    `model` is the original, the file that it was read from, or of a model of transformers its
    config or the folder it is in. Its shapes must be the original's; its weights do not matter,
    since the folder holds those of the smaller network. `check_weights=True` warns if they are not
    the ones that were compressed; use it before the two networks are compared. The network is in
    evaluation mode. The model is left as it was. Nothing is executed from the files.
    """
    source = source_path(folder)
    record, tensors = _read(source)
    model = as_network(model)
    network = unwrap(model if isinstance(model, nn.Module) else built_from(model))
    if check_weights and has_other_weights(record, network):
        warnings.warn(
            f"{source} was made from other weights of {type(network).__name__} than this model "
            "has, so agreement between the two says little; load the weights that were "
            "compressed, or compress this model",
            stacklevel=2,
        )
    try:
        check_architecture(source, record["original"], architecture_of(network))
        network = with_ranks(network, checked_ranks(source, record, network))
        _check_tensors(source, tensors, dict(tensors_of(network)))
        with torch.inference_mode(False):
            smaller = _filled(source, network, tensors)
        set_sizes(source / PLAN, smaller, record["sizes"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StorageError(
            f"{source / PLAN} lacks or garbles {error}; save the result again"
        ) from error
    if not matches(smaller.get_submodule(record.get("part") or ""), record.get("output")):
        raise StorageError(
            f"{source}: the loaded network gives other outputs than the saved one, so the model "
            "keeps something that is neither a parameter, a buffer nor a size (a value cached on "
            "the first call, a module in a plain list); register it, and compress again"
        )
    return smaller.eval()


def part_of(folder: str | os.PathLike[str]) -> str | None:
    """Return the name of the module that a saved result made smaller; None for all of the model."""
    name = _read(source_path(folder))[0].get("part")
    return None if name is None else str(name)


def _filled(source: Path, network: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """Return a copy of the original with the saved tensors."""
    original = dict(tensors_of(network))
    changed = {
        name: tensor if original[name].is_meta else tensor.to(original[name].device)
        for name, tensor in tensors.items()
    }
    smaller = copy_with(network, changed)
    for name, tensor in dict(tensors_of(smaller)).items():
        if name in tensors and tensor.dtype != tensors[name].dtype:
            raise StorageError(f"{source}: {name!r} could not be set; build the model plainly")
    return smaller


def _check_tensors(
    source: Path, tensors: Mapping[str, Tensor], original: Mapping[str, Tensor]
) -> None:
    """Refuse tensors that are missing, larger than the original's, or NaN."""
    for name in original:
        if name not in tensors:
            raise StorageError(f"{source / WEIGHTS} lacks the tensor {name!r}; save again")
    for name, tensor in tensors.items():
        if name not in original:
            raise StorageError(
                f"{source / WEIGHTS} holds {name!r}, which the model does not have; save again"
            )
        sizes = zip(tensor.shape, original[name].shape, strict=False)
        if tensor.ndim != original[name].ndim or any(new > old for new, old in sizes):
            raise StorageError(
                f"{source / WEIGHTS}: {name!r} has shape {tuple(tensor.shape)}, but the original's "
                f"is {tuple(original[name].shape)} and no dim can grow; save again"
            )
        if tensor.is_floating_point() and bool(tensor.isnan().any()):
            raise StorageError(f"{source / WEIGHTS}: {name!r} holds NaN; save again")


def _read(source: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    record, text = _plan(source)
    tensors, fields = load_tensors(source / WEIGHTS, KIND)
    if fields.get("plan") != _sha(text):
        raise StorageError(
            f"{source / PLAN} was changed after it was written, or belongs to other weights; "
            "restore it, or save the result again"
        )
    return record, tensors


def _plan(source: Path) -> tuple[dict[str, Any], str]:
    """Return the checked content of `plan.json`, and its text."""
    if not source.is_dir():
        raise StorageError(
            f"{source} is not a folder; give the folder of a result, which holds {PLAN}"
        )
    for name in (PLAN, WEIGHTS):
        if not (source / name).is_file():
            raise StorageError(
                f"{source} lacks {name}, so it is no folder of a result; give another, or copy or "
                "save the result again"
            )
    try:
        text = (source / PLAN).read_text(encoding="utf-8")
        record = json.loads(text, parse_constant=_refuse_constant)
        kind, version = record["interpress"], int(record["version"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise StorageError(
            f"{source / PLAN} is not a readable plan ({type(error).__name__}: {error}); it may be "
            "truncated: save it again"
        ) from error
    if kind != KIND:
        raise StorageError(f"{source / PLAN} holds {kind!r}, not a {KIND}; give another folder")
    if version > FORMAT_VERSION:
        raise StorageError(
            f"{source} has format version {version}, this interpress reads up to "
            f"{FORMAT_VERSION}; upgrade interpress"
        )
    return record, text


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
